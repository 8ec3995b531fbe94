/** The kms of the bench, in a process of its own: file backend, audit on. Reports its CPU time and its event loop over IPC. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { monitorEventLoopDelay } from 'node:perf_hooks';
import { mint } from '@ron/auth';
import { createLog, loadConfig, Metrics } from '@ron/kernel';
import { schema, startKms } from '@ron/kms';
import { scopesOf } from '@ron/proto';

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
process.on('message', (order: 'start' | 'stop') => {
  if (order === 'start') {
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
  process.send!({
    cpu_us: user + system,
    main_us: main.user + main.system,
    // The histogram counts the timer's own period as well.
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
