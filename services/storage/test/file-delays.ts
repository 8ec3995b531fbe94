/**
 * Delays the file calls of a process on chosen paths, by strace, to stand for one disk that is slow or hangs.
 *
 * strace takes whole paths only. Paths of files that will be made later are predicted: a number in a name goes on.
 * `preadv2` is left alone: storage uses it only with RWF_NOWAIT, and such a call does not wait for a disk.
 */
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { readFile, rm } from 'node:fs/promises';
import { dirname, join, relative } from 'node:path';
import { holdsWithin } from './directory-server.ts';

const CALLS = [
  'open,openat,creat,mkdir,mkdirat,unlink,unlinkat,rename,renameat,renameat2,link,linkat,stat,lstat,newfstatat,statx',
  'access,faccessat,statfs,getdents64,read,pread64,preadv,write,pwrite64,writev,pwritev,ftruncate,fallocate,fsync,fdatasync',
].join(',');
/** `?` lets strace ignore calls that the machine does not have. */
const TRACED = CALLS.split(',')
  .map((name) => `?${name}`)
  .join(',');
const PREDICTED = 24;
const ATTACH_MS_MAX = 10_000;

/** How to start a program so that every path which it names is written to `file`. Keeps the process id. */
export const tracingPaths = (file: string): string[] => [
  'strace',
  '-D',
  '-f',
  '--seccomp-bpf',
  '-s',
  '1',
  '-o',
  file,
  '-e',
  'trace=%file',
];

/** How to start a program with delays from its first call on. Keeps the process id. */
export const delayingFromStart = (paths: readonly string[], delay_ms: number, file: string): string[] => [
  'strace',
  '-D',
  ...optionsOf(paths, delay_ms, file),
];

/** Paths below `dir` that a trace names, `dir` itself included. */
export async function pathsIn(file: string, dir: string): Promise<string[]> {
  const text = await readFile(file, 'utf8');
  const paths = new Set<string>();
  for (const [, path] of text.matchAll(/"(\/[^"\n]*)"/g)) {
    if (path === dir || path!.startsWith(`${dir}/`)) paths.add(path!);
  }
  return [...paths];
}

/** The kind of a file: its path below `dir`, without numbers and ids. */
export function kindOf(path: string, dir: string): string {
  const name = relative(dir, path);
  if (name === '') return 'the directory itself';
  return name.replaceAll(/(?<![a-z])[0-9a-f]*\d[0-9a-f]*(?:-[0-9a-f]+)*(?![a-z])/g, '#');
}

/** The path, and those that it becomes when the last number in it grows. */
export function predicted(path: string): string[] {
  const match = /^(?<before>.*?)(?<number>[0-9a-f]*\d[0-9a-f]*)(?<after>[^0-9/]*)$/.exec(path);
  if (match === null) return [path];
  const { before, number, after } = match.groups as Record<'before' | 'number' | 'after', string>;
  // Longer ones are random ids, not counters.
  if (number.length > 20) return [path];
  const radix = /[a-f]/.test(number) || (number.length === 8 && number.startsWith('0000')) ? [10, 16] : [10];
  const grown = radix.flatMap((base) =>
    Array.from({ length: PREDICTED }, (_, more) =>
      (BigInt(base === 16 ? `0x${number}` : /[a-f]/.test(number) ? '0' : number) + BigInt(more))
        .toString(base)
        .padStart(number.length, '0'),
    ),
  );
  return [...new Set([path, ...grown.map((digits) => `${before}${digits}${after}`)])];
}

function optionsOf(paths: readonly string[], delay_ms: number, file: string): string[] {
  const named = paths.flatMap((path) => ['-P', path]);
  const inject = `inject=${TRACED}:delay_enter=${delay_ms * 1000}`;
  return ['-f', '-s', '1', '-o', file, ...named, '-e', `trace=${TRACED}`, '-e', inject];
}

export interface Delays {
  /** Lets all calls go on. Returns how many were delayed. */
  end(): Promise<number>;
}

/** Delays every call of a running process on these paths until `end`. */
export async function delaying(pid: number, paths: readonly string[], delay_ms: number, dir: string): Promise<Delays> {
  const file = join(dirname(dir), `delays-${pid}`);
  const strace = spawn('strace', ['-p', String(pid), ...optionsOf(paths, delay_ms, file)], {
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  let said = '';
  strace.stderr.setEncoding('utf8').on('data', (text: string) => (said = (said + text).slice(-4000)));
  const isAttached = (): Promise<boolean> => isTraced(pid, strace);
  if (!(await holdsWithin(ATTACH_MS_MAX, isAttached))) {
    strace.kill('SIGKILL');
    throw new Error(`strace could not attach: ${said}`);
  }
  return {
    async end() {
      const ended = strace.exitCode === null && strace.signalCode === null ? once(strace, 'exit') : undefined;
      strace.kill('SIGINT');
      await ended;
      const text = await readFile(file, 'utf8').catch(() => '');
      await rm(file, { force: true });
      return text.split('\n').filter((line) => /^\d+ +\w+\(/.test(line)).length;
    },
  };
}

/** Whether strace has all threads of a process. */
async function isTraced(pid: number, strace: ChildProcess): Promise<boolean> {
  if (strace.exitCode !== null) throw new Error(`strace ended with ${strace.exitCode}`);
  const status = await readFile(`/proc/${pid}/status`, 'utf8');
  return /^TracerPid:\s+[1-9]/m.test(status);
}
