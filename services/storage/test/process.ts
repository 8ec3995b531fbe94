/** Storage as a real process, with a key file that outlives it. */
import { spawn, spawnSync, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { FileKeySource, mint, type MintInit } from '@ron/auth';
import { leaks } from '@ron/auth/testing';
import { ALL_SCOPES, metricIn, send, type Reply, type SendInit } from './support.ts';

const MAIN = fileURLToPath(new URL('../src/main.ts', import.meta.url));
const NEVER = new AbortController().signal;
/** A process that is not ready by then is killed, and its start rejects. */
const START_MS_MAX = 60_000;

export interface ProcessOptions {
  readonly flags?: readonly string[];
  readonly cwd?: string;
  readonly env?: Readonly<Record<string, string>>;
  /** The module to run. Default: the entry of storage. */
  readonly main?: string;
  /** A program that starts node and keeps its process id, such as `strace -D`. */
  readonly under?: readonly string[];
}

export class StorageProcess implements AsyncDisposable {
  readonly child: ChildProcess;
  /** Its log, one object for each line. */
  readonly log: Record<string, unknown>[] = [];
  url = '';

  private constructor(child: ChildProcess) {
    this.child = child;
    createInterface(child.stderr!).on('line', (line) => {
      leaks.shown('the log of a process', line);
      try {
        this.log.push(JSON.parse(line));
      } catch {
        this.log.push({ msg: line });
      }
    });
  }

  /** Starts it and waits until it is ready. Rejects when it ends before. */
  static async start(options: ProcessOptions): Promise<StorageProcess> {
    const { flags = [], cwd, env, main = MAIN, under = [] } = options;
    const [program, ...args] = [...under, process.execPath, main, ...flags];
    const child = spawn(program!, args, {
      // A test's own entry talks with the test over the channel.
      stdio: options.main === undefined ? ['ignore', 'pipe', 'pipe'] : ['ignore', 'pipe', 'pipe', 'ipc'],
      ...(cwd !== undefined && { cwd }),
      ...(env !== undefined && { env: { ...process.env, ...env } }),
    });
    const started = new StorageProcess(child);
    const ready = once(createInterface(child.stdout!), 'line') as Promise<[string]>;
    const ended = once(child, 'exit').then(([code, signal]) => {
      throw new Error(`storage ended at its start (${code ?? signal}): ${JSON.stringify(started.log.slice(-3))}`);
    });
    ended.catch(() => undefined);
    const timer = setTimeout(() => child.kill('SIGKILL'), START_MS_MAX);
    const [line] = await Promise.race([ready, ended]).finally(() => clearTimeout(timer));
    started.url = JSON.parse(line).url;
    return started;
  }

  get pid(): number {
    return this.child.pid!;
  }

  get port(): number {
    return Number(new URL(this.url).port);
  }

  get running(): boolean {
    return this.child.exitCode === null && this.child.signalCode === null;
  }

  send(method: string, path: string, init?: SendInit): Promise<Reply> {
    return send(this.url, method, path, init);
  }

  async metric(series: string): Promise<number> {
    const { text } = await this.send('GET', '/metrics');
    leaks.shown('metrics of a process', text);
    return metricIn(text, series);
  }

  logged(message: string): Record<string, unknown> | undefined {
    return this.log.find((entry) => entry['msg'] === message);
  }

  /** Memory that it holds now. */
  async resident_bytes(): Promise<number> {
    const status = await readFile(`/proc/${this.pid}/status`, 'utf8');
    return Number(/VmRSS:\s+(\d+) kB/.exec(status)![1]) * 1024;
  }

  async exit(): Promise<number | NodeJS.Signals | null> {
    if (this.running) await once(this.child, 'exit');
    return this.child.exitCode ?? this.child.signalCode;
  }

  /** Ends it at once, as a power cut of the process would. */
  async kill(): Promise<void> {
    this.child.kill('SIGKILL');
    await this.exit();
  }

  /** Asks it to stop, and gives its exit code. */
  async stop(): Promise<number | NodeJS.Signals | null> {
    this.child.kill('SIGTERM');
    return await this.exit();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.kill();
  }
}

/** An `Authorization` header for the storage whose keys lie at `path`. Makes the file when it is missing. */
export async function authorizationFrom(
  path: string,
  init: Partial<MintInit> = {},
): Promise<{ authorization: string }> {
  await using keys = await FileKeySource.open({ path }, NEVER);
  leaks.secret('the key of storage capabilities', (await keys.current('storage', NEVER)).key);
  const wanted: MintInit = { audience: 'storage', scopes: ALL_SCOPES, ttl_ms: 3_600_000, ...init };
  return { authorization: `Bearer ${(await mint(keys, wanted, NEVER)).token}` };
}

export const keysIn = (dir: string): string => join(dir, 'keys');

/** A small file system of its own at `dir`; undefined where mounting is not permitted. */
export function mountTmpfs(dir: string, size: string): Mount | undefined {
  const run = (...args: string[]): boolean => spawnSync(args[0]!, args.slice(1), { stdio: 'ignore' }).status === 0;
  if (!run('mount', '-t', 'tmpfs', '-o', `size=${size}`, 'tmpfs', dir)) return undefined;
  return {
    remount: (options) => run('mount', '-o', `remount,${options}`, dir),
    [Symbol.dispose]: () => void run('umount', '-l', dir),
  };
}

export interface Mount extends Disposable {
  remount(options: string): boolean;
}

export const NO_MOUNT = 'mounting a tmpfs is not permitted here';
