/** Starts servers as child processes and reads their CPU time and memory; shared by the benchmarks of services. */
import { spawn, type ChildProcess } from 'node:child_process';
import { mkdirSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { FileKeySource, mint } from '@ron/auth';

export interface Server {
  readonly port: number;
  /** The process whose CPU time is measured. */
  readonly pid: number;
}

export interface ServiceProcess extends Server {
  readonly child: ChildProcess;
}

export interface Storage extends ServiceProcess {
  readonly token: string;
  readonly authorization: string;
}

export const path = (file: string): string => fileURLToPath(new URL(file, import.meta.url));

export async function firstLine(child: ChildProcess): Promise<string> {
  let text = '';
  for await (const piece of child.stdout!) {
    text += String(piece);
    if (text.includes('\n')) return text.slice(0, text.indexOf('\n'));
  }
  throw new Error('the server exited before it printed its address');
}

export interface StartInit {
  /** The checkout whose service runs. Default: this one. */
  readonly root?: string;
  /** Modules to preload; they communicate over IPC. */
  readonly preload?: string | readonly string[];
  /** Called with the process before it is ready. */
  readonly onSpawn?: (child: ChildProcess) => void;
}

/** Starts storage with its data in `data`. It inherits the Node flags of this process, for example `--cpu-prof`. */
export async function startStorage(data: string, init: StartInit, ...flags: string[]): Promise<Storage> {
  const { signal } = new AbortController();
  const keys = await FileKeySource.open({ path: join(data, 'keys') }, signal);
  const { token } = await mint(keys, { audience: 'storage', scopes: ['storage:put'], ttl_ms: 3_600_000 }, signal);
  const bind = flags.some((flag) => flag.startsWith('--server.bind=')) ? [] : ['--server.bind=127.0.0.1:0'];
  const started = await startService('storage', init, [...bind, `--data_dirs=${data}`, ...flags]);
  return { ...started, token, authorization: `Bearer ${token}` };
}

/** Starts a service. It inherits the Node flags of this process, for example `--cpu-prof`. */
export async function startService(name: string, init: StartInit, flags: readonly string[]): Promise<ServiceProcess> {
  const { root = path('..'), preload, onSpawn } = init;
  const main = join(root, `services/${name}/src/main.ts`);
  const modules = typeof preload === 'string' ? [preload] : (preload ?? []);
  const node = [...process.execArgv, ...modules.map((module) => `--import=${module}`)];
  const stdio = [
    'ignore' as const,
    'pipe' as const,
    'ignore' as const,
    ...(preload === undefined ? [] : ['ipc' as const]),
  ];
  // The environment of `ron up`.
  const env = { ...process.env, MALLOC_ARENA_MAX: process.env['MALLOC_ARENA_MAX'] ?? '1' };
  const child = spawn(process.execPath, [...node, main, ...flags], { stdio, env });
  onSpawn?.(child);
  const { url } = JSON.parse(await firstLine(child)) as { url: string };
  return { port: Number(new URL(url).port), pid: child.pid!, child };
}

/** Starts a server of this folder that prints its port, with a directory of its own. */
export async function startPeer(file: string, dir: string, ...args: string[]): Promise<ServiceProcess> {
  mkdirSync(dir, { recursive: true });
  const child = spawn(process.execPath, [path(file), dir, ...args], { stdio: ['ignore', 'pipe', 'inherit'] });
  return { port: Number(await firstLine(child)), pid: child.pid!, child };
}

/** CPU time of all threads of a process. */
export function cpu_us(pid: number): number {
  const task = `/proc/${pid}/task`;
  const times = readdirSync(task).map((id) => Number(readFileSync(`${task}/${id}/schedstat`, 'utf8').split(' ')[0]));
  return times.reduce((sum, ns) => sum + ns, 0) / 1000;
}

/** Private memory of a process, without mapped file pages. */
export function ownMemory_bytes(pid: number): number {
  const kib = /^RssAnon:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1];
  return Number(kib) * 1024;
}
