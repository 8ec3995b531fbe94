/**
 * Where a service gets the keys with which it checks capabilities, and an issuer those with which it mints them.
 *
 * Contract: the same interface over a file, over memory, and over a key service (see derived-keys.ts). A source zeroes its keys when it closes and
 * prints none of them. `generation` changes when a key stops being good, so that whoever remembers results forgets them.
 * Bound: `RING_KEYS_MAX` root keys. Cancellation: every call takes a signal; nothing is left half done.
 */
import { inspect } from 'node:util';
import type { Service } from '@ron/proto';
import { RonError, sched } from '@ron/kernel';
import { createKeyFile, readKeyFile, replaceKeyFile, withKeyFileLock } from './key-file.ts';
import { KeyRing, RING_KEYS_MAX, SECRET_BYTES } from './key-ring.ts';
import type { AudienceKey, KeySet, RingKey } from './key-ring.ts';

export interface KeySource extends AsyncDisposable {
  /** Changes whenever a key that was handed out is no longer good. */
  readonly generation: number;
  /**
   * The key of an audience under a key id; undefined when there is none. Rejects when the source cannot say. The bytes
   * belong to the source, which zeroes them when they are no longer good: use them at once, and only if `generation` is
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

/** Keys that live and die with the process: for amnesia, for tests, and for a service that was handed its own keys. */
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
  /** Whether a missing file is made, with one new root key. Default true. A service with only its own keys says false. */
  create?: boolean;
  /** How often an unknown key id may make us read the file again. Default 1000. */
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
    // Another process was faster: its keys are the keys.
    wipeSet(made);
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
    // Another process may have rotated. Strangers choose key ids, so this is limited in time, not by id.
    await this.reload(signal);
    return this.#ring.key(audience, key_id);
  }

  async current(audience: Service, signal: AbortSignal): Promise<AudienceKey> {
    signal.throwIfAborted();
    return this.#ring.current(audience);
  }

  /** Reads the file again. Keys that are gone from it stop being good at once. A bad file changes nothing and rejects. */
  async reload(signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    this.#read_ms = sched.now_ms();
    this.#reading ??= this.#reload().finally(() => (this.#reading = undefined));
    await this.#reading;
    signal.throwIfAborted();
  }

  /** Makes a new current key. Capabilities under the older ones stay good until those are retired. */
  rotate(signal: AbortSignal): Promise<string> {
    return this.#change(signal, (keys) => {
      if (keys.length === RING_KEYS_MAX) throw new RonError('conflict', 'no room for another key: retire one first');
      return [randomKey(), ...keys];
    }).then(() => this.#ring.keyIds[0] ?? '');
  }

  /** Ends a key: every capability under it stops being good. The current key cannot be ended, only replaced. */
  retire(key_id: string, signal: AbortSignal): Promise<void> {
    return this.#change(signal, (keys) => {
      if (keys[0]?.key_id === key_id) throw new RonError('conflict', `${key_id} is the current key: rotate first`);
      if (!keys.some((key) => key.key_id === key_id)) throw new RonError('not_found', `there is no key ${key_id}`);
      return keys.filter((key) => key.key_id !== key_id);
    });
  }

  /** Writes the file from which one service can check its own capabilities and mint for no other. */
  async writeAudienceFile(path: string, audience: Service, signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    const set = this.#ring.audienceSet(audience);
    try {
      if (!(await createKeyFile(path, set))) await replaceKeyFile(path, set);
    } finally {
      wipeSet(set);
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
    if (set === undefined) throw new RonError('not_ready', `the key file ${this.#path} is gone`);
    return set;
  }

  #adopt(set: KeySet): void {
    if (!this.#closed) return this.#ring.adopt(set);
    wipeSet(set);
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

/** Zeroes secrets that nobody needs any more. */
export function wipeSet(set: KeySet): void {
  for (const key of set.keys) key.secret.fill(0);
}
