/**
 * Services of an earlier `ron up` that was killed: they notice and drain, but that takes a moment.
 *
 * Promise: a node does not start beside what is left of an earlier one on the same data. Nothing is killed: what does not
 * go by itself within `WAIT_MS` is named.
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
        throw new CliError('unavailable', `${name} of an earlier run still runs here (pid ${pid}): stop it first`);
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
    // No /proc here, or it is gone in this moment.
    return isAlive(pid);
  }
}
