/**
 * Holds the calls of a process on chosen files, by strace: each waits before it begins, or after it is done, until `release`.
 *
 * strace takes whole paths. Calls on other files, and the event loop, are not delayed.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdir, readFile, readlink } from 'node:fs/promises';
import { join } from 'node:path';
import { eventually } from '@ron/testkit';

const WRITES = '?write,?pwrite64,?writev,?pwritev,?pwritev2';
const SYNCS = 'fsync,fdatasync';
const HELD_US = 60_000_000;

/** `writes`: before they begin. `syncs`: before they begin. `synced`: after they are done. */
export type HeldStep = 'writes' | 'syncs' | 'synced';

const STEPS: Readonly<Record<HeldStep, readonly [calls: string, delay: string]>> = {
  writes: [WRITES, 'delay_enter'],
  syncs: [SYNCS, 'delay_enter'],
  synced: [SYNCS, 'delay_exit'],
};

export interface HeldCalls {
  /** Waits until a call is held. */
  begun(): Promise<void>;
  /** Lets the calls go on. */
  release(): Promise<void>;
}

export async function holdCalls(pid: number, paths: readonly string[], step: HeldStep): Promise<HeldCalls> {
  const [calls, delay] = STEPS[step];
  const files = paths.flatMap((path) => ['-P', path]);
  const what = ['-e', `trace=${calls}`, '-e', `inject=${calls}:${delay}=${HELD_US}`];
  const strace = spawn('strace', ['-f', '-p', String(pid), ...files, '-o', '/dev/null', ...what], {
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  let said = '';
  strace.stderr.setEncoding('utf8').on('data', (text: string) => (said = (said + text).slice(-2000)));
  await eventually('strace has every thread', async () => {
    if (strace.exitCode !== null) throw new Error(`strace ended: ${said}`);
    return await hasEveryThread(pid);
  });
  return {
    begun: () => eventually('a call is held', () => isHeld(pid, paths)),
    async release() {
      if (strace.exitCode !== null || strace.signalCode !== null) return;
      const ended = once(strace, 'exit');
      // Its end resumes the calls at once.
      strace.kill('SIGKILL');
      await ended;
    },
  };
}

async function hasEveryThread(pid: number): Promise<boolean> {
  for (const thread of await readdir(`/proc/${pid}/task`)) {
    const status = await readFile(`/proc/${pid}/task/${thread}/status`, 'utf8').catch(() => 'TracerPid:\t1');
    if (!/^TracerPid:\s+[1-9]/m.test(status)) return false;
  }
  return true;
}

/** Whether a thread is stopped in a call on one of the files. */
async function isHeld(pid: number, paths: readonly string[]): Promise<boolean> {
  for (const thread of await readdir(`/proc/${pid}/task`)) {
    const of = `/proc/${pid}/task/${thread}`;
    const status = await readFile(`${of}/status`, 'utf8').catch(() => '');
    if (!/^State:\s+t/m.test(status)) continue;
    const [, descriptor] = (await readFile(`${of}/syscall`, 'utf8').catch(() => '')).split(' ');
    if (descriptor === undefined) continue;
    const path = await readlink(`/proc/${pid}/fd/${Number(descriptor)}`).catch(() => '');
    if (paths.includes(path)) return true;
  }
  return false;
}

/** The files of a directory now. */
export async function filesIn(dir: string): Promise<string[]> {
  return (await readdir(dir)).map((name) => join(dir, name));
}
