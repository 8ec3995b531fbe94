/** Kms for the benchmark, as a child process with file backend and audit. Reports CPU time and loop turns over IPC. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { monitorEventLoopDelay } from 'node:perf_hooks';
import { mint } from '@ron/auth';
import { createLog, Metrics } from '@ron/telemetry';
import { loadConfig } from '@ron/config';
import { schema, startKms } from '@ron/kms';
import { scopesOf } from '@ron/proto';
import { threadCpu_us } from './clocks.ts';

const dir = mkdtempSync(join(tmpdir(), 'ron-bench-kms-'));
const config = loadConfig({ schema, flags: [`--data_dir=${dir}`, ...process.argv.slice(2)] });
const log = createLog({ service: 'kms', level: 'warn' });
const env = { RON_KEK: '00'.repeat(32) };
const kms = await startKms({ config, metrics: new Metrics('kms'), log, env });
const never = new AbortController().signal;
const { token } = await mint(kms.keys, { audience: 'kms', scopes: scopesOf('kms'), ttl_ms: 3_600_000 }, never);

const delay = monitorEventLoopDelay({ resolution: 1 });
let before = process.cpuUsage();
let main_before = process.threadCpuUsage();
let entries = 0;

/** The most CPU time of the main thread in one turn of the event loop; other processes do not affect it. */
let longest_turn_us = 0;
let isWatching = false;
function watchTurns(before_us: number): void {
  if (!isWatching) return;
  longest_turn_us = Math.max(longest_turn_us, threadCpu_us() - before_us);
  const now_us = threadCpu_us();
  // Watching keeps the loop busy, which costs CPU time; rates are measured in other runs.
  setImmediate(() => watchTurns(now_us));
}

process.on('message', (order: 'start' | 'watch' | 'stop') => {
  if (order === 'watch') {
    isWatching = true;
    longest_turn_us = 0;
    watchTurns(threadCpu_us());
  }
  if (order === 'start' || order === 'watch') {
    before = process.cpuUsage();
    main_before = process.threadCpuUsage();
    entries = kms.vault.log!.size;
    delay.reset();
    delay.enable();
    process.send!({ started: true });
    return;
  }
  const { user, system } = process.cpuUsage(before);
  const main = process.threadCpuUsage(main_before);
  delay.disable();
  isWatching = false;
  process.send!({
    longest_turn_ms: longest_turn_us / 1000,
    cpu_us: user + system,
    main_us: main.user + main.system,
    // The histogram includes the period of its timer.
    blocked_ms: delay.percentile(99.9) / 1e6 - 1,
    entries: kms.vault.log!.size - entries,
  });
});
process.on('SIGTERM', () => {
  void kms.abort().finally(() => {
    rmSync(dir, { recursive: true, force: true });
    process.exit();
  });
});
process.on('SIGINT', () => undefined);
process.on('disconnect', () => process.kill(process.pid, 'SIGTERM'));
process.send!({ port: Number(new URL(kms.url).port), token });
