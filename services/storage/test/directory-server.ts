/**
 * Storage as a real process over several directories, which a test takes away, brings back and swaps.
 *
 * Bound: every request, start and task has a deadline. The directories lie below the project, because the temporary
 * directory of a machine may be memory. Disposal kills the process and removes all files.
 */
import { mkdir, mkdtemp, rename, rmdir } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { removeDir, type TempDir } from '@ron/testkit';
import {
  authorizationFrom,
  type Json,
  type Reply,
  send,
  type SendInit,
  type ServiceProcess,
} from '@ron/testkit/service';
import { keysIn, startProcess, type ProcessOptions } from './process.ts';

const TEMP_ROOT = fileURLToPath(new URL('../../../.ron/tests', import.meta.url));
const REQUEST_MS_MAX = 20_000;
const TASK_MS_MAX = 45_000;
const POLL_MS = 40;

export const TUS = { 'tus-resumable': '1.0.0' } as const;
export const UPLOAD_BYTES = { ...TUS, 'content-type': 'application/offset+octet-stream' } as const;

/** A temporary directory on the disk that holds the project. */
export async function diskDir(): Promise<TempDir> {
  await mkdir(TEMP_ROOT, { recursive: true });
  const path = await mkdtemp(join(TEMP_ROOT, 'storage-'));
  return {
    path,
    async [Symbol.asyncDispose]() {
      await removeDir(path);
      // Another test may still use it.
      await rmdir(TEMP_ROOT).catch(() => undefined);
    },
  };
}

export interface RequestInit extends SendInit {
  readonly deadline_ms?: number;
}

/** Sends a request. Rejects when the connection breaks or the deadline passes. */
export function requestOnce(url: string, method: string, path: string, init: RequestInit = {}): Promise<Reply> {
  const { deadline_ms = REQUEST_MS_MAX, ...rest } = init;
  return send(url, method, path, { ...rest, signal: AbortSignal.timeout(deadline_ms) });
}

export interface DirectoryServerInit {
  readonly dirs: number;
  readonly flags?: readonly string[];
  readonly process?: Pick<ProcessOptions, 'env' | 'main' | 'under'>;
}

export class DirectoryServer implements AsyncDisposable {
  readonly dirs: readonly string[];
  readonly #temp: TempDir;
  readonly #init: DirectoryServerInit;
  readonly headers: { readonly authorization: string };
  readonly #away = new Set<number>();
  process: ServiceProcess | undefined;

  private constructor(temp: TempDir, init: DirectoryServerInit, headers: { authorization: string }) {
    this.#temp = temp;
    this.#init = init;
    this.headers = headers;
    this.dirs = Array.from({ length: init.dirs }, (_, index) => join(temp.path, `d${index}`));
  }

  static async create(init: DirectoryServerInit): Promise<DirectoryServer> {
    const temp = await diskDir();
    return new DirectoryServer(temp, init, await authorizationFrom(keysIn(temp.path), 'storage'));
  }

  get base(): string {
    return this.#temp.path;
  }

  /** The indexes of the directories that were taken away. */
  get away(): ReadonlySet<number> {
    return this.#away;
  }

  get url(): string {
    if (this.process === undefined) throw new Error('storage is not running');
    return this.process.url;
  }

  async start(options: DirectoryServerInit['process'] = this.#init.process): Promise<ServiceProcess> {
    const flags = [
      '--server.bind=127.0.0.1:0',
      `--auth.key_file=${keysIn(this.base)}`,
      `--data_dirs=${this.dirs.join(',')}`,
      ...(this.#init.flags ?? []),
    ];
    this.process = await startProcess({ flags, ...options });
    return this.process;
  }

  async stop(): Promise<void> {
    await this.process?.stop();
    this.process = undefined;
  }

  async kill(): Promise<void> {
    await this.process?.kill();
    this.process = undefined;
  }

  async takeAway(index: number): Promise<void> {
    const dir = this.dirs[index]!;
    await rename(dir, `${dir}.away`);
    this.#away.add(index);
  }

  async bringBack(index: number): Promise<void> {
    const dir = this.dirs[index]!;
    // A process that missed the directory may have made an empty one in its place, or is making it.
    await removeDir(dir);
    await rename(`${dir}.away`, dir);
    this.#away.delete(index);
  }

  /** Swaps two directories that are in their places. Storage must be stopped. */
  async swap(one: number, other: number): Promise<void> {
    const [a, b] = [this.dirs[one]!, this.dirs[other]!];
    await rename(a, `${a}.swapped`);
    await rename(b, a);
    await rename(`${a}.swapped`, b);
  }

  request(method: string, path: string, init: RequestInit = {}): Promise<Reply> {
    return requestOnce(this.url, method, path, { ...init, headers: { ...this.headers, ...init.headers } });
  }

  /** The answer as JSON. Throws when the request is refused. */
  async ask(method: string, path: string): Promise<Json> {
    const reply = await this.request(method, path);
    if (reply.status >= 300) throw new Error(`${method} ${path}: ${reply.status} ${reply.text}`);
    return JSON.parse(reply.text);
  }

  beginTask(kind: TaskKind): Promise<Task> {
    return this.ask('POST', `/admin/${kind}`);
  }

  /** Polls a task until it has ended; `onProgress` is called with each state that the poll sees. */
  async endOf(task: Task, onProgress?: (task: Task) => Promise<void> | void): Promise<Task> {
    const until_ms = performance.now() + TASK_MS_MAX;
    for (let seen = task; ; seen = await this.ask('GET', `/admin/tasks/${task.id}`)) {
      await onProgress?.(seen);
      if (seen.state !== 'running') return seen;
      if (performance.now() > until_ms) throw new Error(`task ${task.kind} did not end: ${JSON.stringify(seen)}`);
      await pause(POLL_MS);
    }
  }

  async runTask(kind: TaskKind): Promise<Task> {
    return await this.endOf(await this.beginTask(kind));
  }

  async volumes(): Promise<readonly VolumeState[]> {
    return (await this.ask('GET', '/admin/volumes')).volumes;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.kill();
    await this.#temp[Symbol.asyncDispose]();
  }
}

export type TaskKind = 'compact' | 'repair' | 'scrub';

export interface Task {
  readonly id: string;
  readonly kind: TaskKind;
  readonly state: string;
  readonly progress: Json;
  readonly problem?: string;
}

export interface VolumeState {
  readonly name: string;
  readonly life: string;
  readonly condition: string;
  readonly reason: string;
  readonly is_current: boolean;
  readonly segments: number;
}

export const isServing = (volume: VolumeState): boolean => volume.life === 'active' && volume.is_current;

export const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

/** Polls until `holds` gives true, at most `wait_ms`. Returns whether it did. */
export async function holdsWithin(wait_ms: number, holds: () => Promise<boolean>): Promise<boolean> {
  const until_ms = performance.now() + wait_ms;
  while (!(await holds())) {
    if (performance.now() > until_ms) return false;
    await pause(POLL_MS);
  }
  return true;
}
