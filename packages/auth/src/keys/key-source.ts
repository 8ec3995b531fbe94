/**
 * Sources of the keys with which a service checks capabilities and an issuer mints them.
 *
 * Contract: one interface for a file, for memory, and for a key service (`derived-keys.ts`). A source zeroes its keys
 * when it closes and never prints them. `generation` changes when a key becomes invalid, so that callers drop cached
 * results.
 * Bound: `RING_KEYS_MAX` root keys.
 * Cancellation: every call takes a signal; nothing is left half done.
 */
import { inspect } from 'node:util';
import type { Service } from '@ron/proto';
import { RonError, sched } from '@ron/kernel';
import { createKeyFile, readKeyFile, replaceKeyFile, withKeyFileLock } from './key-file.ts';
import { KeyRing, RING_KEYS_MAX, SECRET_BYTES } from './key-ring.ts';
import type { AudienceKey, KeySet, RingKey } from './key-ring.ts';

export interface KeySource extends AsyncDisposable {
  /** Changes whenever a key that was handed out becomes invalid. */
  readonly generation: number;
  /**
   * The key of an audience under a key id; undefined if there is none. Rejects if the source is not available. The
   * bytes belong to the source, which zeroes them when they become invalid: use them at once, and only if `generation`
   * is
   * the same as before the call.
   */
  key(audience: Service, key_id: string, signal: AbortSignal): Promise<Uint8Array | undefined>;
  /** The key to mint with. */
  current(audience: Service, signal: AbortSignal): Promise<AudienceKey>;
  close(): Promise<void>;
}

/** A new key of random bytes. */
function randomKey(): RingKey {
  return { key_id: Buffer.from(sched.randomBytes(6)).toString('hex'), secret: sched.randomBytes(SECRET_BYTES) };
}

/** Keys that exist only in this process: for amnesia, for tests, and for a service that received its own keys. */
export class MemoryKeySource implements KeySource {
  readonly #ring: KeyRing;

  /** Takes over the secrets of `set`. Default: one new root key. */
  constructor(set: KeySet = { audience: 'root', keys: [randomKey()] }) {
    this.#ring = new KeyRing(set);
  }

  get generation(): number {
    return this.#ring.generation;
  }

  key(audience: Service, key_id: string, signal: AbortSignal): Promise<Uint8Array | undefined> {
    return signal.aborted ? Promise.reject(signal.reason) : Promise.resolve(this.#ring.key(audience, key_id));
  }

  async current(audience: Service, signal: AbortSignal): Promise<AudienceKey> {
    signal.throwIfAborted();
    return this.#ring.current(audience);
  }

  /** Copies of one audience's keys, for the service of that name. The caller owns them. */
  audienceSet(audience: Service): KeySet {
    return this.#ring.audienceSet(audience);
  }

  close(): Promise<void> {
    this.#ring.wipe();
    return Promise.resolve();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  toJSON(): string {
    return `MemoryKeySource(${this.#ring.toJSON()})`;
  }

  [inspect.custom](): string {
    return this.toJSON();
  }
}

export interface FileKeySourceInit {
  path: string;
  /** Whether a missing file is created, with one new root key. Default true; false for a service with only its own keys. */
  create?: boolean;
  /** Minimum time between reads of the file for unknown key ids. Default 1000. */
  reread_ms?: number;
}

/** Keys in a file that only its owner can read; see key-file.ts. */
export class FileKeySource implements KeySource {
  readonly #path: string;
  readonly #ring: KeyRing;
  readonly #reread_ms: number;
  #read_ms: number;
  #reading: Promise<void> | undefined;
  #closed = false;

  private constructor(init: FileKeySourceInit, set: KeySet) {
    this.#path = init.path;
    this.#reread_ms = init.reread_ms ?? 1000;
    this.#ring = new KeyRing(set);
    this.#read_ms = sched.now_ms();
  }

  static async open(init: FileKeySourceInit, signal: AbortSignal): Promise<FileKeySource> {
    signal.throwIfAborted();
    const found = await readKeyFile(init.path);
    if (found !== undefined) return new FileKeySource(init, found);
    if (init.create === false) throw new RonError('not_ready', `there is no key file at ${init.path}`);
    const made: KeySet = { audience: 'root', keys: [randomKey()] };
    if (await createKeyFile(init.path, made)) return new FileKeySource(init, made);
    // Another process created the file first: use its keys.
    zeroKeySet(made);
    return FileKeySource.open({ ...init, create: false }, signal);
  }

  get generation(): number {
    return this.#ring.generation;
  }

  get keyIds(): readonly string[] {
    return this.#ring.keyIds;
  }

  async key(audience: Service, key_id: string, signal: AbortSignal): Promise<Uint8Array | undefined> {
    signal.throwIfAborted();
    const known = this.#ring.key(audience, key_id);
    if (known !== undefined || this.#closed || sched.now_ms() - this.#read_ms < this.#reread_ms) return known;
    // Another process may have rotated the key. Clients choose key ids, so the limit is by time, not by id.
    await this.reload(signal);
    return this.#ring.key(audience, key_id);
  }

  async current(audience: Service, signal: AbortSignal): Promise<AudienceKey> {
    signal.throwIfAborted();
    return this.#ring.current(audience);
  }

  /** Reads the file again. Keys that are no longer in it become invalid at once. A damaged file changes nothing and rejects. */
  async reload(signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    this.#read_ms = sched.now_ms();
    this.#reading ??= this.#reload().finally(() => (this.#reading = undefined));
    await this.#reading;
    signal.throwIfAborted();
  }

  /** Creates a new current key. Capabilities under older keys remain valid until those are retired. */
  rotate(signal: AbortSignal): Promise<string> {
    return this.#change(signal, (keys) => {
      if (keys.length === RING_KEYS_MAX) throw new RonError('conflict', 'the key set is full: retire a key first');
      return [randomKey(), ...keys];
    }).then(() => this.#ring.keyIds[0] ?? '');
  }

  /** Retires a key: every capability under it becomes invalid. The current key can only be replaced. */
  retire(key_id: string, signal: AbortSignal): Promise<void> {
    return this.#change(signal, (keys) => {
      if (keys[0]?.key_id === key_id) throw new RonError('conflict', `${key_id} is the current key: rotate first`);
      if (!keys.some((key) => key.key_id === key_id)) throw new RonError('not_found', `there is no key ${key_id}`);
      return keys.filter((key) => key.key_id !== key_id);
    });
  }

  /** Writes a file with which one service can check its own capabilities but not mint for others. */
  async writeAudienceFile(path: string, audience: Service, signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    const set = this.#ring.audienceSet(audience);
    try {
      if (!(await createKeyFile(path, set))) await replaceKeyFile(path, set);
    } finally {
      zeroKeySet(set);
    }
  }

  async #change(signal: AbortSignal, edit: (keys: readonly RingKey[]) => readonly RingKey[]): Promise<void> {
    signal.throwIfAborted();
    await withKeyFileLock(this.#path, async () => {
      const { audience, keys } = await this.#readAgain();
      const next = { audience, keys: edit(keys) };
      await replaceKeyFile(this.#path, next);
      this.#adopt(next);
    });
  }

  async #reload(): Promise<void> {
    this.#adopt(await this.#readAgain());
  }

  async #readAgain(): Promise<KeySet> {
    const set = await readKeyFile(this.#path);
    if (set === undefined) throw new RonError('not_ready', `the key file ${this.#path} is missing`);
    return set;
  }

  #adopt(set: KeySet): void {
    if (!this.#closed) return this.#ring.adopt(set);
    zeroKeySet(set);
    throw new RonError('closed', 'the key source is closed');
  }

  close(): Promise<void> {
    this.#closed = true;
    this.#ring.wipe();
    return Promise.resolve();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  toJSON(): string {
    return `FileKeySource(${this.#path}, ${this.#ring.toJSON()})`;
  }

  [inspect.custom](): string {
    return this.toJSON();
  }
}

/** Zeroes secrets that are no longer needed. */
export function zeroKeySet(set: KeySet): void {
  for (const key of set.keys) key.secret.fill(0);
}
