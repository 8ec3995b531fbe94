/**
 * Measures the vault with many keys: `node services/kms/test/vault.bench.ts [keys...]`. Default 10 000 and 100 000.
 *
 * For each number: the time and the CPU time of the event loop for one create, the longest turn, the time of a start and the
 * resident memory.
 */
import { monitorEventLoopDelay, performance } from 'node:perf_hooks';
import { mkdtemp, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { loadConfig } from '@ron/config';
import { NEVER } from '@ron/kernel';
import { schema } from '../src/config.ts';
import { KeyOperations } from '../src/keys/key-operations.ts';
import { openVault, type Vault } from '../src/vault/vault.ts';

const TOGETHER = 128;
const MEASURED = 500;

function open(dir: string): Promise<Vault> {
  const config = loadConfig({ schema, flags: [`--data_dir=${dir}`] });
  return openVault({ config, env: { RON_KEK: '00'.repeat(32) }, signal: NEVER, warn: () => undefined });
}

const at = (sorted: readonly number[], share: number): string =>
  sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))]!.toFixed(2);

async function measure(dir: string, keys: number): Promise<void> {
  let vault = await open(dir);
  const make = (number: number): Promise<unknown> =>
    new KeyOperations(vault.registry, vault.backend).create(
      { tenant: `tenant-${number % 1000}`, purpose: 'docs', alg: 'aes-256-gcm' },
      NEVER,
    );
  while (vault.registry.index.size < keys) {
    const count = Math.min(TOGETHER, keys - vault.registry.index.size);
    await Promise.all(Array.from({ length: count }, (_, number) => make(number)));
  }
  await vault.close();
  const began_ms = performance.now();
  vault = await open(dir);
  const start_ms = performance.now() - began_ms;
  const took_ms: number[] = [];
  const cpu = process.threadCpuUsage();
  for (let number = 0; number < MEASURED; number++) {
    const before_ms = performance.now();
    await make(number);
    took_ms.push(performance.now() - before_ms);
  }
  const { user, system } = process.threadCpuUsage(cpu);
  // Separately, because its timer needs CPU time too.
  const delay = monitorEventLoopDelay({ resolution: 1 });
  delay.enable();
  for (let number = 0; number < MEASURED; number++) await make(number);
  delay.disable();
  const sorted = took_ms.toSorted((a, b) => a - b);
  const { size } = await stat(join(dir, 'vault/data.mdb'));
  console.log(
    [
      `${keys} keys`,
      `create p50 ${at(sorted, 0.5)} ms, p99 ${at(sorted, 0.99)} ms`,
      `event loop ${((user + system) / MEASURED / 1000).toFixed(3)} ms CPU each, longest turn ${(delay.max / 1e6).toFixed(1)} ms`,
      `start ${start_ms.toFixed(0)} ms`,
      `resident ${(process.memoryUsage().rss / 2 ** 20).toFixed(0)} MiB`,
      `file ${(size / 2 ** 20).toFixed(0)} MiB`,
    ].join('; '),
  );
  await vault.close();
}

const dir = await mkdtemp(join(tmpdir(), 'ron-vault-'));
const numbers = process.argv.slice(2).map(Number);
for (const keys of numbers.length === 0 ? [10_000, 100_000] : numbers) await measure(dir, keys);
await rm(dir, { recursive: true });
