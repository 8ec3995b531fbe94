/**
 * Waits for the services of an earlier `ron up` that was killed. They drain and exit, but that takes a moment.
 *
 * Contract: a node does not start while services of an earlier run use its data. Orphans are not killed: if one still runs
 * after `WAIT_MS`, the error names it. Cancellation: by the signal.
 */
import { readFile } from 'node:fs/promises';
import { sched, sleep } from '@ron/kernel/core';
import { CliError } from '../exits.ts';
import { isAlive, readState, type Home } from '../home.ts';
import type { ServiceEntry } from './table/service-entry.ts';

const WAIT_MS = 20_000;
const POLL_MS = 50;

export async function waitForOrphans(
  home: Home,
  table: readonly ServiceEntry[],
  onWait: (name: string, pid: number) => void,
  signal: AbortSignal,
): Promise<void> {
  const state = await readState(home);
  const until_ms = sched.now_ms() + WAIT_MS;
  for (const { name, main } of table) {
    const pid = state?.pids[name];
    if (pid === undefined || !(await isService(pid, main))) continue;
    onWait(name, pid);
    while (await isService(pid, main)) {
      if (sched.now_ms() > until_ms) {
        throw new CliError('unavailable', `${name} of an earlier run still runs (pid ${pid}): stop it first`);
      }
      await sleep(POLL_MS, signal, 'orphans');
    }
  }
}

/** Whether the process is that service; the pid alone may belong to another process by now. */
async function isService(pid: number, main: string): Promise<boolean> {
  if (!isAlive(pid)) return false;
  try {
    return (await readFile(`/proc/${pid}/cmdline`, 'utf8')).split('\0').includes(main);
  } catch {
    // The system has no /proc, or the process has just exited.
    return isAlive(pid);
  }
}
