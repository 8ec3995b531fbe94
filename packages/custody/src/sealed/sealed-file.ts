/**
 * A document in one sealed file: the keys of the `file` backend, and whatever else has to be kept from eyes and hands.
 *
 *   RONSEAL1 | key box (100) | version (8, big-endian) | sealed document
 *
 * Everything before the sealed document, and the purpose of the file, are bound to it: another version number, another
 * file of the same owner, or a flipped bit do not open. See sealer.ts for the key box.
 * Promise: `update` resolves when the new document is on stable storage; after a crash the file is the old one or the new
 * one, whole. The version goes up with every write: whoever remembers the last one elsewhere sees that an older copy
 * was put in place (`version_min`). One process at a time has it open.
 * Bound: `DOCUMENT_BYTES_MAX`; `WAITING_MAX` changes wait while one write is under way, which then carries them together.
 * Overflow: `busy`, `storage_full`. Cancellation: a change whose signal aborts before its write began was not made.
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

/** How a document becomes bytes. `encode` runs for every write; `decode` once and may throw. */
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
  /** What is in it, for instance `kms-keys`: a file of one purpose does not open as another. */
  purpose: string;
  /** The document of a file that is not there yet. It is written at once. */
  initial: T;
  /** Default: JSON. */
  codec?: Codec<T>;
  /** The last version that is known from elsewhere. A file that is older, or missing, is refused. Default 0: unknown. */
  version_min?: number;
  fs?: FileSystem;
  signal: AbortSignal;
}

type Change<T> = (value: T) => T;
/** What a change came to: it may refuse by itself, without harm to those that are written with it. */
type Outcome = { readonly version: number } | { readonly refused: unknown };

export class SealedFile<T> implements AsyncDisposable {
  readonly path: string;
  readonly #purpose: string;
  readonly #fs: FileSystem;
  readonly #codec: Codec<T>;
  #lock: Disposable | undefined;
  #box: Uint8Array;
  /** The box that the next write carries, while what unlocks is being changed. */
  #boxNext: Uint8Array | undefined;
  readonly #master: KeyObject;
  readonly #writes: GroupCommit<Change<T>, Outcome>;
  #value: T;
  #version: number;
  /** Higher than the version when a write failed: what it left behind must not be taken for the next one. */
  #version_tried: number;

  private constructor(init: SealedFileInit<T>, lock: Disposable | undefined, opened: Opened<T>) {
    this.path = init.path;
    // Not all of `init`: what unlocks is not kept.
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
    const fs = init.fs ?? realFileSystem;
    init.signal.throwIfAborted();
    await fs.makeDir(dirname(init.path)).catch(rethrow);
    const lock = fs.lock?.(`${init.path}.lock`);
    if (fs.lock !== undefined && lock === undefined) {
      throw new RonError('conflict', `${init.path} is in use by another process`);
    }
    try {
      await removeLeftOver(fs, init.path).catch(rethrow);
      const opened = await openExisting(fs, init);
      if (opened !== undefined) return new SealedFile(init, lock, opened);
      const made = new SealedFile(init, lock, await openNew(init));
      await made.replace(init.initial, init.signal);
      return made;
    } catch (error) {
      lock?.[Symbol.dispose]();
      throw error;
    }
  }

  /** The document as it is on the disk. Do not change it: give `update` another one. */
  get value(): T {
    return this.#value;
  }

  /** How often it was written. */
  get version(): number {
    return this.#version;
  }

  /** Writes another document; its version. */
  replace(next: T, signal: AbortSignal): Promise<number> {
    return this.update(() => next, signal);
  }

  /** Writes what `change` makes of the document as it then is; its version. What `change` throws, only its caller gets. */
  async update(change: Change<T>, signal: AbortSignal): Promise<number> {
    const outcome = await this.#writes.append(change, 1, signal);
    if ('refused' in outcome) throw outcome.refused;
    return outcome.version;
  }

  /** From now on it opens with this, and no longer with what opened it before. Older copies of the file still do. */
  async relock(unlock: Unlock, signal: AbortSignal): Promise<void> {
    const box = await newKeyBox(unlock, Buffer.from(this.#purpose), this.#master, signal);
    this.#boxNext = box;
    try {
      await this.update((value) => value, signal);
    } finally {
      if (this.#boxNext === box) this.#boxNext = undefined;
    }
  }

  /** Seals a part by itself, so that the document in memory holds no secret. `context` says which part it is. */
  seal(context: string, plaintext: Uint8Array): Uint8Array {
    return sealBytes(this.#master, this.#partContext(context), plaintext);
  }

  /** The caller zeroes what it gets. */
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
      throw new RonError('storage_full', `${this.path} would grow beyond ${DOCUMENT_BYTES_MAX} bytes`);
    }
    const header = Buffer.alloc(HEADER_BYTES);
    header.set(MAGIC);
    header.set(box, MAGIC.length);
    header.writeBigUInt64BE(BigInt(version), VERSION_AT);
    return Buffer.concat([header, sealBytes(this.#master, fileContext(header, this.#purpose), document)]);
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
    throw new RonError('integrity', `${init.path} is missing, and it was there before: put it back`, { op: 'missing' });
  }
  const master = newMaster();
  const box = await newKeyBox(init.unlock, Buffer.from(init.purpose), master, init.signal);
  return { box, master, value: init.initial, version: 0 };
}

async function openExisting<T>(fs: FileSystem, init: SealedFileInit<T>): Promise<Opened<T> | undefined> {
  const bytes = await readWhole(fs, init.path, FILE_BYTES_MAX).catch(rethrow);
  if (bytes === undefined) return undefined;
  const isOurs = bytes.length >= HEADER_BYTES + SEAL_BYTES && MAGIC.equals(bytes.subarray(0, MAGIC.length));
  if (!isOurs) throw refused(init.path, 'is not a sealed file');
  const header = bytes.subarray(0, HEADER_BYTES);
  const box = Uint8Array.from(header.subarray(MAGIC.length, VERSION_AT));
  const version = Number(header.readBigUInt64BE(VERSION_AT));
  const { master, document } = await unsealDocument(init, box, header, bytes.subarray(HEADER_BYTES));
  if (version < (init.version_min ?? 0)) {
    const message = `${init.path} has version ${version}, and version ${init.version_min} was seen before: an older copy was put in its place`;
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
  try {
    const master = await openKeyBox(init.unlock, Buffer.from(init.purpose), box, init.signal);
    return { master, document: unsealBytes(master, fileContext(header, init.purpose), sealed) };
  } catch (error) {
    if (!isRonError(error)) throw error;
    if (error.code === 'not_ready') throw refused(init.path, `does not open: ${error.message}`);
    throw refused(
      init.path,
      `does not open as ${init.purpose}: another key or passphrase sealed it, or it was damaged`,
    );
  }
}

const fileContext = (header: Uint8Array, purpose: string): Uint8Array => Buffer.concat([header, Buffer.from(purpose)]);

function refused(path: string, why: string): RonError {
  return new RonError('not_ready', `${path} ${why}`, { op: 'sealed_file' });
}

function rethrow(error: unknown): never {
  throw diskError(error);
}
