/**
 * The config in force, and how it is replaced while the service runs.
 *
 * Contract: `watch` always holds a complete, valid, frozen config. `reload` reads the file again and swaps the whole or
 * nothing: a bad file, or a change to a key that needs a restart, keeps the old config and says why. Reloads run one
 * after another, in the order in which they were requested.
 * Bound: a file of at most `FILE_BYTES_MAX`. Overflow: a longer one is refused unread.
 * Cancellation: `close` closes the watch; a reload that is under way then reports that it came too late.
 */
// oxlint-disable-next-line ron/no-blocking-calls -- one small file, before the service starts
import { closeSync, openSync, readSync } from 'node:fs';
import { open } from 'node:fs/promises';
import type { ConfigFile, ConfigProblem } from './given.ts';
import { describe, HIDDEN } from './given.ts';
import { ConfigError, configValue, loadConfig, type Config, type ConfigSchema, type KeyTable } from './config.ts';
import { Watch } from '@ron/kernel';

export const FILE_BYTES_MAX = 1024 * 1024;
/** Keys that `problem` names. */
const PROBLEM_KEYS_MAX = 8;

export interface ConfigSourceInit<K> {
  schema: ConfigSchema<K>;
  flags?: readonly string[];
  env?: Readonly<Record<string, string | undefined>>;
  /** Such as `RON_STORAGE_`. */
  env_prefix?: string;
  /** A file that was named must be there. Default: no file. */
  file?: { path: string; table?: string | undefined } | undefined;
}

export type ReloadResult =
  | { readonly ok: true; readonly changed: readonly string[] }
  | { readonly ok: false; readonly problems: readonly ConfigProblem[] };

export class ConfigSource<K extends KeyTable> implements AsyncDisposable {
  readonly watch: Watch<Config<K>>;
  readonly #init: ConfigSourceInit<K>;
  #closed = false;
  #problem: string | undefined;
  /** The tail of the reloads: each starts when the one before has ended. */
  #last: Promise<unknown> = Promise.resolve();

  private constructor(init: ConfigSourceInit<K>, config: Config<K>) {
    this.#init = init;
    this.watch = new Watch('config', config);
  }

  /** Throws `ConfigError` when anything is wrong. */
  static async open<const K extends KeyTable>(init: ConfigSourceInit<K>): Promise<ConfigSource<K>> {
    return new ConfigSource(init, await read(init, readAtMostNow));
  }

  get value(): Config<K> {
    return this.watch.value;
  }

  /** Why the last reload was refused, with the names of the keys and without values; undefined if it was applied. */
  get problem(): string | undefined {
    return this.#problem;
  }

  /** Never rejects because of the config: the result contains the problems. */
  reload(): Promise<ReloadResult> {
    const result = this.#last.then(async () => {
      const reloaded = await this.#reload();
      this.#problem = reloaded.ok ? undefined : `the last reload was refused: ${keysOf(reloaded.problems)}`;
      return reloaded;
    });
    this.#last = result.catch(() => {});
    return result;
  }

  close(): void {
    this.#closed = true;
    this.watch.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    this.close();
    return Promise.resolve();
  }

  async #reload(): Promise<ReloadResult> {
    let next: Config<K>;
    try {
      next = await read(this.#init, readAtMost);
    } catch (error) {
      if (error instanceof ConfigError) return { ok: false, problems: error.problems };
      throw error;
    }
    const keys = Object.entries(this.#init.schema.keys);
    const changed = keys.filter(([name]) => !same(configValue(this.value, name), configValue(next, name)));
    const problems = changed
      .filter(([, key]) => !key.reloadable)
      .map(([name, key]): ConfigProblem => {
        const shown = (value: unknown): string => (key.secret ? HIDDEN : describe(value));
        const expected = `no change from ${shown(configValue(this.value, name))} without a restart`;
        return { key: name, source: 'reload', expected, found: shown(configValue(next, name)) };
      });
    if (this.#closed)
      problems.push({ key: '(reload)', source: 'reload', expected: 'a running service', found: 'a closed one' });
    if (problems.length > 0) return { ok: false, problems };
    if (changed.length > 0) this.watch.set(next);
    return { ok: true, changed: changed.map(([name]) => name) };
  }
}

function keysOf(problems: readonly ConfigProblem[]): string {
  const names = [...new Set(problems.map(({ key }) => key))];
  const more = names.length - PROBLEM_KEYS_MAX;
  return [...names.slice(0, PROBLEM_KEYS_MAX), ...(more > 0 ? [`${more} more`] : [])].join(', ');
}

type Reader = (path: string, bytes_max: number) => Promise<Uint8Array | undefined>;

async function read<K extends KeyTable>(init: ConfigSourceInit<K>, reader: Reader): Promise<Config<K>> {
  const { schema, flags, env, env_prefix } = init;
  const file = init.file === undefined ? undefined : await readFile(init.file, reader);
  return loadConfig({ schema, flags, env, env_prefix, file });
}

async function readFile(file: { path: string; table?: string | undefined }, reader: Reader): Promise<ConfigFile> {
  const refused = (found: string): ConfigError =>
    new ConfigError([{ key: '(file)', source: `file ${file.path}`, expected: 'a readable TOML file', found }]);
  const bytes = await reader(file.path, FILE_BYTES_MAX).catch((error: unknown) => {
    throw refused(error instanceof Error && 'code' in error ? String(error.code) : 'an unreadable one');
  });
  if (bytes === undefined) throw refused(`more than ${FILE_BYTES_MAX} bytes`);
  try {
    return { ...file, text: new TextDecoder('utf-8', { fatal: true }).decode(bytes) };
  } catch {
    throw refused('bytes that are not UTF-8');
  }
}

/** The file's bytes, or undefined if there are more. A size from `stat` would be a guess: it may be a pipe. */
async function readAtMost(path: string, bytes_max: number): Promise<Uint8Array | undefined> {
  await using handle = await open(path, 'r');
  const buffer = Buffer.allocUnsafe(bytes_max + 1);
  let length = 0;
  while (length <= bytes_max) {
    const { bytesRead } = await handle.read(buffer, length, buffer.length - length);
    if (bytesRead === 0) return buffer.subarray(0, length);
    length += bytesRead;
  }
  return undefined;
}

/** The same at the start, without a thread: how many threads a process has can only be said before the first is used. */
async function readAtMostNow(path: string, bytes_max: number): Promise<Uint8Array | undefined> {
  const fd = openSync(path, 'r');
  try {
    const buffer = Buffer.allocUnsafe(bytes_max + 1);
    let length = 0;
    while (length <= bytes_max) {
      const count = readSync(fd, buffer, length, buffer.length - length, null);
      if (count === 0) return buffer.subarray(0, length);
      length += count;
    }
    return undefined;
  } finally {
    closeSync(fd);
  }
}

function same(left: unknown, right: unknown): boolean {
  if (Array.isArray(left) && Array.isArray(right)) {
    return left.length === right.length && left.every((item, index) => item === right[index]);
  }
  return left === right;
}
