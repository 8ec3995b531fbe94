/**
 * A document in one encrypted and authenticated file: the keys of the `file` backend, and other secrets of a service.
 *
 *   RONSEAL1 | key box (100) | version (8, big-endian) | sealed document
 *
 * The header and the purpose of the file are bound to the document: a file with another version number, a file for another
 * purpose, or a file with a flipped bit does not open. See sealer.ts for the key box.
 * Contract: `update` resolves when the new document is on stable storage; after a crash the file holds the old document or
 * the new one, whole. After a failed write the old document stays in force, but the disk may hold the new one: the next open reads
 * either. Every write increments the version, so an owner that stores the last version elsewhere detects a rollback
 * (`version_min`). One process at a time may open the file.
 * A file that does not open is refused with `not_ready`. `isDamaged` tells a damaged one, whose bytes were read, from one that the
 * disk did not give and from one whose key box does not open: that key or passphrase may be wrong.
 * Bound: `DOCUMENT_BYTES_MAX`; `WAITING_MAX` changes wait during a write, and the next write commits them together.
 * Overflow: `busy`, `storage_full`. Cancellation: a change whose signal aborts before its write begins is not applied.
 */
import { dirname } from 'node:path';
import type { KeyObject } from 'node:crypto';
import { isRonError, RonError } from '@ron/kernel';
import {
  diskError,
  GroupCommit,
  readWhole,
  realFileSystem,
  removeLeftOver,
  writeWhole,
  type FileSystem,
} from '@ron/log';
import {
  KEY_BOX_BYTES,
  newKeyBox,
  newMaster,
  openKeyBox,
  SEAL_BYTES,
  sealBytes,
  unsealBytes,
  type Unlock,
} from './sealer.ts';

export const DOCUMENT_BYTES_MAX = 64 * 1024 * 1024;
const WAITING_MAX = 1024;
const MAGIC = Buffer.from('RONSEAL1');
const VERSION_AT = MAGIC.length + KEY_BOX_BYTES;
const HEADER_BYTES = VERSION_AT + 8;
const FILE_BYTES_MAX = HEADER_BYTES + SEAL_BYTES + DOCUMENT_BYTES_MAX;

/** Serialises a document. `encode` runs for every write; `decode` runs once and may throw. */
export interface Codec<T> {
  encode(value: T): Uint8Array;
  decode(bytes: Uint8Array): T;
}

export function jsonCodec<T>(): Codec<T> {
  return {
    encode: (value) => Buffer.from(JSON.stringify(value)),
    decode: (bytes) => JSON.parse(Buffer.from(bytes).toString()) as T,
  };
}

export interface SealedFileInit<T> {
  path: string;
  unlock: Unlock;
  /** The content, for instance `kms-keys`: a file for one purpose does not open as another. */
  purpose: string;
  /** The document of a new file. It is written immediately. */
  initial: T;
  /** Default: JSON. */
  codec?: Codec<T>;
  /** The last version known from elsewhere. An older or missing file is refused. Default 0: unknown. */
  version_min?: number;
  fs?: FileSystem;
  signal: AbortSignal;
}

type Change<T> = (value: T) => T;
/** The outcome of one change. A refused change does not affect the others in its write. */
type Outcome = { readonly version: number } | { readonly refused: unknown };

export class SealedFile<T> implements AsyncDisposable {
  readonly path: string;
  readonly #purpose: string;
  readonly #fs: FileSystem;
  readonly #codec: Codec<T>;
  #lock: Disposable | undefined;
  #box: Uint8Array;
  /** The key box for the next write, while `relock` runs. */
  #boxNext: Uint8Array | undefined;
  readonly #master: KeyObject;
  readonly #writes: GroupCommit<Change<T>, Outcome>;
  #value: T;
  #version: number;
  /** Higher than the version after a failed write: the next write must not reuse its number. */
  #version_tried: number;

  private constructor(init: SealedFileInit<T>, lock: Disposable | undefined, opened: Opened<T>) {
    this.path = init.path;
    // `init` is not stored, because it contains the unlock secret.
    this.#purpose = init.purpose;
    this.#fs = init.fs ?? realFileSystem;
    this.#codec = init.codec ?? jsonCodec();
    this.#lock = lock;
    this.#box = opened.box;
    this.#master = opened.master;
    this.#value = opened.value;
    this.#version = opened.version;
    this.#version_tried = opened.version;
    this.#writes = new GroupCommit({
      name: 'sealed_file',
      queue_bytes_max: WAITING_MAX,
      batch_bytes_max: WAITING_MAX,
      commit: (changes) => this.#commit(changes),
    });
  }

  static async open<T>(init: SealedFileInit<T>): Promise<SealedFile<T>> {
    return await withLock(init, async (fs, lock) => {
      const opened = await openExisting(fs, init);
      if (opened !== undefined) return new SealedFile(init, lock, opened);
      const made = new SealedFile(init, lock, await openNew(init));
      await made.replace(init.initial, init.signal);
      return made;
    });
  }

  /** A new file. The one that is at its path, if any, stays until the first write replaces it. */
  static async create<T>(init: SealedFileInit<T>): Promise<SealedFile<T>> {
    return await withLock(init, async (_fs, lock) => new SealedFile(init, lock, await openNew(init)));
  }

  /** The document on disk. Do not modify it: call `update`. */
  get value(): T {
    return this.#value;
  }

  /** The number of writes so far. */
  get version(): number {
    return this.#version;
  }

  /** Writes another document. Returns its version. */
  replace(next: T, signal: AbortSignal): Promise<number> {
    return this.update(() => next, signal);
  }

  /** Writes the result of `change` and returns its version. An error of `change` rejects this call only. */
  async update(change: Change<T>, signal: AbortSignal): Promise<number> {
    const outcome = await this.#writes.append(change, 1, signal);
    if ('refused' in outcome) throw outcome.refused;
    return outcome.version;
  }

  /** Replaces the key or passphrase that opens the file. Older copies of the file still open with the old one. */
  async relock(unlock: Unlock, signal: AbortSignal): Promise<void> {
    const box = await newKeyBox(unlock, Buffer.from(this.#purpose), this.#master, signal);
    this.#boxNext = box;
    try {
      await this.update((value) => value, signal);
    } finally {
      if (this.#boxNext === box) this.#boxNext = undefined;
    }
  }

  /** Seals one part separately, so that the document in memory holds no secret. `context` names the part. */
  seal(context: string, plaintext: Uint8Array): Uint8Array {
    return sealBytes(this.#master, this.#partContext(context), plaintext);
  }

  /** The caller zeroes the result. */
  unseal(context: string, sealed: Uint8Array): Uint8Array {
    return unsealBytes(this.#master, this.#partContext(context), sealed);
  }

  async close(): Promise<void> {
    await this.#writes.close();
    this.#lock?.[Symbol.dispose]();
    this.#lock = undefined;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  #partContext(context: string): Uint8Array {
    return Buffer.from(`${this.#purpose}\npart\n${context}`);
  }

  async #commit(changes: readonly Change<T>[]): Promise<Outcome[]> {
    const version = this.#version_tried + 1;
    let next = this.#value;
    const outcomes = changes.map((change): Outcome => {
      try {
        next = change(next);
        return { version };
      } catch (error) {
        return { refused: error };
      }
    });
    if (outcomes.every((outcome) => 'refused' in outcome)) return outcomes;
    const box = this.#boxNext ?? this.#box;
    const bytes = this.#encode(next, version, box);
    this.#version_tried = version;
    await writeWhole(this.#fs, this.path, bytes).catch(rethrow);
    this.#box = box;
    this.#value = next;
    this.#version = version;
    return outcomes;
  }

  #encode(value: T, version: number, box: Uint8Array): Uint8Array {
    const document = this.#codec.encode(value);
    if (document.length > DOCUMENT_BYTES_MAX) {
      throw new RonError('storage_full', `${this.path} would exceed ${DOCUMENT_BYTES_MAX} bytes`);
    }
    const header = Buffer.alloc(HEADER_BYTES);
    header.set(MAGIC);
    header.set(box, MAGIC.length);
    header.writeBigUInt64BE(BigInt(version), VERSION_AT);
    return Buffer.concat([header, sealBytes(this.#master, fileContext(header, this.#purpose), document)]);
  }
}

/** Holds the lock of the file until the result is closed. */
async function withLock<T>(
  { path, fs = realFileSystem, signal }: SealedFileInit<T>,
  open: (fs: FileSystem, lock: Disposable | undefined) => Promise<SealedFile<T>>,
): Promise<SealedFile<T>> {
  signal.throwIfAborted();
  await fs.makeDir(dirname(path)).catch(rethrow);
  const lock = fs.lock?.(`${path}.lock`);
  if (fs.lock !== undefined && lock === undefined) {
    throw new RonError('conflict', `${path} is in use by another process`);
  }
  try {
    await removeLeftOver(fs, path).catch(rethrow);
    return await open(fs, lock);
  } catch (error) {
    lock?.[Symbol.dispose]();
    throw error;
  }
}

interface Opened<T> {
  readonly box: Uint8Array;
  readonly master: KeyObject;
  readonly value: T;
  readonly version: number;
}

async function openNew<T>(init: SealedFileInit<T>): Promise<Opened<T>> {
  if ((init.version_min ?? 0) > 0) {
    throw new RonError('integrity', `${init.path} is missing; restore it from a backup`, { op: 'missing' });
  }
  const master = newMaster();
  const box = await newKeyBox(init.unlock, Buffer.from(init.purpose), master, init.signal);
  return { box, master, value: init.initial, version: 0 };
}

async function openExisting<T>(fs: FileSystem, init: SealedFileInit<T>): Promise<Opened<T> | undefined> {
  const bytes = await readWhole(fs, init.path, FILE_BYTES_MAX).catch(rethrow);
  if (bytes === undefined) return undefined;
  const isOurs = bytes.length >= HEADER_BYTES + SEAL_BYTES && MAGIC.equals(bytes.subarray(0, MAGIC.length));
  if (!isOurs) throw refused(init.path, 'is not a sealed file', DAMAGED);
  const header = bytes.subarray(0, HEADER_BYTES);
  const box = Uint8Array.from(header.subarray(MAGIC.length, VERSION_AT));
  const version = Number(header.readBigUInt64BE(VERSION_AT));
  const { master, document } = await unsealDocument(init, box, header, bytes.subarray(HEADER_BYTES));
  if (version < (init.version_min ?? 0)) {
    const message = `${init.path} was rolled back: it has version ${version}, and version ${init.version_min} was written before`;
    throw new RonError('integrity', message, { op: 'rollback' });
  }
  try {
    return { box, master, value: (init.codec ?? jsonCodec<T>()).decode(document), version };
  } finally {
    document.fill(0);
  }
}

async function unsealDocument<T>(
  init: SealedFileInit<T>,
  box: Uint8Array,
  header: Uint8Array,
  sealed: Uint8Array,
): Promise<{ master: KeyObject; document: Uint8Array }> {
  const master = await openKeyBox(init.unlock, Buffer.from(init.purpose), box, init.signal).catch((error: unknown) => {
    if (!isRonError(error)) throw error;
    if (error.code === 'not_ready') throw refused(init.path, `cannot be opened: ${error.message}`);
    throw refused(
      init.path,
      `cannot be opened as ${init.purpose}: the key or passphrase is wrong, or the file is damaged`,
    );
  });
  try {
    return { master, document: unsealBytes(master, fileContext(header, init.purpose), sealed) };
  } catch (error) {
    if (!isRonError(error)) throw error;
    throw refused(init.path, 'is damaged', DAMAGED);
  }
}

const fileContext = (header: Uint8Array, purpose: string): Uint8Array => Buffer.concat([header, Buffer.from(purpose)]);

function refused(path: string, why: string, op = 'sealed_file'): RonError {
  return new RonError('not_ready', `${path} ${why}`, { op });
}

const DAMAGED = 'sealed_file_damaged';

/** Whether `open` was refused because the bytes of the file are not those that were written. */
export const isDamaged = (error: unknown): boolean => isRonError(error, 'not_ready') && error.op === DAMAGED;

function rethrow(error: unknown): never {
  throw diskError(error);
}
