/**
 * Keys in one sealed file; see sealed-file.ts and sealer.ts for the format.
 *
 * Contract: a key that `create` returned survives any crash. A destroyed key does not return, unless the file is rolled
 * back, which `version_min` detects. Each secret is sealed separately inside the document, so it is in plaintext only
 * while it is loaded into a key object.
 * Bound: `keys_max` keys of about 200 bytes; concurrent creations share one write. Cancellation: see sealed-file.ts.
 */
import { assert, NEVER } from '@ron/kernel';
import type { FileSystem } from '@ron/log';
import { isAlg, type Alg } from '../algorithms/algorithms.ts';
import { noSuchKey } from '../backend/backend.ts';
import { SealedFile, type Codec } from '../sealed/sealed-file.ts';
import type { Unlock } from '../sealed/sealer.ts';
import { noRoom, SoftBackend, type KeyStore, type StoredKey } from './soft-backend.ts';

const PURPOSE = 'custody-keys';
/** Every write rewrites the whole file: 16 384 keys are 3 MB. */
const FILE_KEYS_MAX = 16_384;

export interface FileBackendInit {
  path: string;
  unlock: Unlock;
  /** Default 16 384. */
  keys_max?: number;
  /** The last `version` known from elsewhere; an older file is refused. Default 0: unknown. */
  version_min?: number;
  /** A short JSON value of the owner, sealed into every write. Default none. */
  note?: () => unknown;
  fs?: FileSystem;
  signal: AbortSignal;
}

export class FileBackend extends SoftBackend {
  readonly #file: SealedFile<Entries>;
  /** The note of the file when it was opened. */
  readonly noted: unknown;

  private constructor(file: SealedFile<Entries>, keys_max: number, noted: unknown) {
    super({ name: 'file', attestation_class: 'software:sealed-file', store: new FileStore(file, keys_max) });
    this.#file = file;
    this.noted = noted;
  }

  static async open(init: FileBackendInit): Promise<FileBackend> {
    let noted: unknown;
    const codec = codecOf(init.note ?? (() => undefined), (found) => (noted = found));
    const file = await SealedFile.open<Entries>({
      path: init.path,
      unlock: init.unlock,
      purpose: PURPOSE,
      initial: new Map(),
      codec,
      version_min: init.version_min ?? 0,
      ...(init.fs === undefined ? {} : { fs: init.fs }),
      signal: init.signal,
    });
    return new FileBackend(file, init.keys_max ?? FILE_KEYS_MAX, noted);
  }

  /** Replaces the key or passphrase that opens the file; see sealed-file.ts. */
  relock(unlock: Unlock, signal: AbortSignal): Promise<void> {
    return this.#file.relock(unlock, signal);
  }

  /** Incremented by every write. Store it elsewhere to detect a rollback. */
  get version(): number {
    return this.#file.version;
  }
}

interface EntryFields {
  readonly key: string;
  readonly alg: Alg;
  readonly label: string;
  /** The secret, sealed for this key and algorithm. */
  readonly sealed_b64: string;
  readonly spent: number;
}

interface Entry extends EntryFields {
  /** The encoded line, so that a write does not encode unchanged entries. */
  readonly line: Uint8Array;
}

type Entries = ReadonlyMap<string, Entry>;

function entryOf(fields: EntryFields): Entry {
  return { ...fields, line: Buffer.from(`${JSON.stringify(fields)}\n`) };
}

/** One line per key, preceded by a line with the owner's note if there is one. */
function codecOf(note: () => unknown, onNote: (found: unknown) => void): Codec<Entries> {
  return {
    encode(entries) {
      const noted = note();
      const first = noted === undefined ? [] : [Buffer.from(`${JSON.stringify({ note: noted })}\n`)];
      return Buffer.concat([...first, ...[...entries.values()].map((entry) => entry.line)]);
    },
    decode(bytes) {
      const lines = Buffer.from(bytes).toString().split('\n').slice(0, -1);
      const parsed = lines.map((line) => JSON.parse(line) as EntryFields | { readonly note: unknown });
      const [first] = parsed;
      if (first !== undefined && 'note' in first) onNote(first.note);
      const entries = parsed.filter((each) => 'key' in each);
      return new Map(
        entries.map(({ key, alg, label, sealed_b64, spent }) => {
          assert(isAlg(alg) && Number.isSafeInteger(spent), 'an entry of the key file is whole');
          return [key, entryOf({ key, alg, label, sealed_b64, spent })];
        }),
      );
    },
  };
}

class FileStore implements KeyStore {
  readonly #file: SealedFile<Entries>;
  readonly #keys_max: number;

  constructor(file: SealedFile<Entries>, keys_max: number) {
    this.#file = file;
    this.#keys_max = keys_max;
  }

  get(key: string): StoredKey | undefined {
    const entry = this.#file.value.get(key);
    if (entry === undefined) return undefined;
    const { alg, spent, sealed_b64 } = entry;
    return { alg, spent, secret: () => this.#file.unseal(partOf(key, alg), Buffer.from(sealed_b64, 'base64')) };
  }

  async add(key: string, alg: Alg, label: string, secret: Uint8Array, signal: AbortSignal): Promise<void> {
    const sealed_b64 = Buffer.from(this.#file.seal(partOf(key, alg), secret)).toString('base64');
    const entry = entryOf({ key, alg, label, sealed_b64, spent: 0 });
    await this.#file.update((entries) => {
      if (entries.size >= this.#keys_max) throw noRoom(this.#keys_max);
      return this.#draft(entries).set(key, entry);
    }, signal);
  }

  async remove(key: string, signal: AbortSignal): Promise<void> {
    if (!this.#file.value.has(key)) return;
    await this.#file.update((entries) => {
      const rest = this.#draft(entries);
      rest.delete(key);
      return rest;
    }, signal);
  }

  async reserve(key: string, spent: number): Promise<void> {
    await this.#file.update((entries) => {
      const entry = entries.get(key);
      if (entry === undefined) throw noSuchKey();
      return this.#draft(entries).set(key, entryOf({ ...fieldsOf(entry), spent }));
    }, NEVER);
  }

  close(): Promise<void> {
    return this.#file.close();
  }

  /** A mutable copy, shared by all changes of a write. It is not visible to readers before it is written. */
  #draft(entries: Entries): Map<string, Entry> {
    return entries === this.#file.value ? new Map(entries) : (entries as Map<string, Entry>);
  }
}

const partOf = (key: string, alg: Alg): string => `${key}\n${alg}`;

function fieldsOf({ key, alg, label, sealed_b64, spent }: Entry): EntryFields {
  return { key, alg, label, sealed_b64, spent };
}
