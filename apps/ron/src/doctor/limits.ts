/** Checks the limits and the clock of the machine. */
import { readFile, stat } from 'node:fs/promises';
import { loadConfig } from '@ron/config';
import { sched } from '@ron/kernel/core';
import type { Service } from '@ron/proto';
import { humanDuration } from '../format.ts';
import type { Home } from '../home.ts';
import type { ServiceEntry } from '../up/table/service-entry.ts';
import type { Finding } from './finding.ts';

const FILES_PER_CONNECTION = 2;
const FILE_FLAG = '--config=';
/** Not one of Node itself, such as `--max-old-space-size`. */
const CONFIG_FLAG = /^--[a-z0-9_.]+=/;
/** File systems and clocks differ by less. */
const TOLERANCE_MS = 60_000;

/** The limit on open files of each running service, against its limit on connections. No finding without `/proc`. */
export async function checkOpenFiles(
  running: readonly ServiceEntry[],
  pids: Readonly<Partial<Record<Service, number>>>,
): Promise<Finding[]> {
  const found = await Promise.all(
    running.map(async (entry) => {
      const pid = pids[entry.name];
      const allowed = pid === undefined ? undefined : await openFilesOf(pid);
      const required = FILES_PER_CONNECTION * (pid === undefined ? 0 : await connectionsOf(entry, pid));
      return { name: entry.name, allowed, required };
    }),
  );
  const known = found.filter(({ allowed }) => allowed !== undefined);
  const short = known.filter(({ allowed, required }) => allowed! < required);
  if (known.length === 0) return [];
  if (short.length === 0) {
    const allowed = Math.min(...known.map((each) => each.allowed!));
    return [
      { level: 'ok', what: `${allowed} open files allowed, ${Math.max(...known.map((e) => e.required))} required` },
    ];
  }
  return short.map(({ name, allowed, required }) => ({
    level: 'warn',
    what: `${name} may open ${allowed} files, ${required} are required for its connections`,
    fix: `raise the limit (ulimit -n ${required}) and restart, or lower max_conns`,
  }));
}

async function openFilesOf(pid: number): Promise<number | undefined> {
  const text = await readFile(`/proc/${pid}/limits`, 'utf8').catch(() => '');
  const [, soft] = /^Max open files\s+(\d+|unlimited)/m.exec(text) ?? [];
  return soft === undefined ? undefined : soft === 'unlimited' ? Infinity : Number(soft);
}

/** `max_conns` of a running service, by its flags and its file. */
async function connectionsOf(entry: ServiceEntry, pid: number): Promise<number> {
  const text = await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '');
  const all = text.split('\0').filter((argument) => argument.startsWith('--'));
  const path = all.find((flag) => flag.startsWith(FILE_FLAG))?.slice(FILE_FLAG.length);
  const config = loadConfig({
    schema: await entry.schema(),
    flags: all.filter((flag) => CONFIG_FLAG.test(flag) && !flag.startsWith('--config')),
    file: path === undefined ? undefined : { path, text: await readFile(path, 'utf8'), table: entry.name },
  });
  return (config as unknown as { readonly max_conns: number }).max_conns;
}

/** Whether the clock went back: a file of the node was written later than now. */
export async function checkClock(home: Home): Promise<Finding[]> {
  const files = [home.state, home.capability, home.of('storage').log, home.of('index').log];
  const times = await Promise.all(
    files.map((file) =>
      stat(file).then(
        ({ mtimeMs }) => mtimeMs,
        () => 0,
      ),
    ),
  );
  const ahead_ms = Math.max(...times) - sched.wall_ms();
  if (ahead_ms <= TOLERANCE_MS) return [];
  const what = `the clock is wrong: files of the node are ${humanDuration(ahead_ms)} ahead of it`;
  const fix = 'set the clock (timedatectl set-ntp true): capabilities and names have expiry times';
  return [{ level: 'fail', what, fix }];
}
