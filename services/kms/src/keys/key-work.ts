/**
 * What is done with keys: made, imported, rotated, retired, deleted.
 *
 * Promise: a key is told about only when the backend has it and the book has written it down. Material that was made for
 * a change which then did not happen is destroyed again. Deleting a version is two steps with a waiting period between
 * them, and never touches the current version; a version that was restored is whole.
 * Bound: as the book's and the backend's. Cancellation: by the signal, until the change is being written.
 */
import { ALGORITHMS, requirePublicPart, type Alg, type Backend, type KeyHandle } from '@ron/custody';
import { Deadline, RonError, sched } from '@ron/kernel';
import type { VerifyMode } from '@ron/proto';
import { formatKid, RAW_PURPOSE } from '../kid.ts';
import { verifyOnly } from '../sign/signer.ts';
import { defaultMode, requireMode } from '../verify/modes.ts';
import type { KeyBook } from './key-book.ts';
import { headOf, versionOf, type KeyRecord, type KeyVersion, type OpMark } from './key-record.ts';

export interface CreateRequest {
  readonly tenant: string;
  readonly purpose: string;
  readonly alg: Alg;
  readonly verify_mode?: VerifyMode | undefined;
  readonly min_version?: number | undefined;
  readonly made_by?: OpMark | undefined;
}

export interface ImportRequest {
  readonly tenant: string;
  readonly alg: Alg;
  readonly pubkey_b64: string;
}

const CLEANUP_MS = 2000;

export class KeyWork {
  readonly #book: KeyBook;
  readonly #backend: Backend;
  readonly #delete_wait_ms: () => number;

  constructor(book: KeyBook, backend: Backend, delete_wait_ms: () => number) {
    this.#book = book;
    this.#backend = backend;
    this.#delete_wait_ms = delete_wait_ms;
  }

  async create(request: CreateRequest, signal: AbortSignal): Promise<KeyRecord> {
    const { tenant, purpose, alg, verify_mode, min_version = 1 } = request;
    const name = `${tenant}/${purpose}/${alg}/${newUuid()}`;
    if (purpose === RAW_PURPOSE && ALGORITHMS[alg].use !== 'sign') {
      throw new RonError('validation', 'keys of purpose raw sign: they are of a signature algorithm');
    }
    requireMode(alg, verify_mode);
    const handle = await this.#backend.create(alg, name, signal);
    const version = newVersion(1, handle, request.made_by);
    const record: KeyRecord = {
      name,
      tenant,
      purpose,
      alg,
      verify_mode: verify_mode ?? defaultMode(alg),
      min_version,
      imported: false,
      versions: [version],
    };
    return await this.#orDestroy(handle, () => this.#book.change(() => record, signal));
  }

  async import(request: ImportRequest, signal: AbortSignal): Promise<KeyRecord> {
    const { tenant, alg, pubkey_b64 } = request;
    if (ALGORITHMS[alg].signs.length !== 1) {
      throw new RonError('validation', `a public key of ${alg} cannot be imported: one of a single signature can`);
    }
    const part = { alg, pubkey_b64 };
    requirePublicPart(part);
    const record: KeyRecord = {
      name: `${tenant}/${RAW_PURPOSE}/${alg}/${newUuid()}`,
      tenant,
      purpose: RAW_PURPOSE,
      alg,
      verify_mode: defaultMode(alg),
      min_version: 1,
      imported: true,
      versions: [{ version: 1, public: [part], created_ms: sched.wall_ms() }],
    };
    return await this.#book.change(() => record, signal);
  }

  /** `kid` with a version: only if that is current, so that two who rotate the same version rotate once. */
  async rotate(kid: string, made_by: OpMark | undefined, signal: AbortSignal): Promise<KeyRecord> {
    const { record } = this.#book.index.current(kid);
    if (record.imported) throw verifyOnly(record.name);
    const handle = await this.#backend.create(record.alg, record.name, signal);
    return await this.#orDestroy(handle, () =>
      this.#book.change((index) => {
        // Looked up anew: another rotation may have come first.
        const current = index.current(kid).record;
        const version = newVersion(headOf(current).version + 1, handle, made_by);
        return { ...current, versions: [...current.versions, version] };
      }, signal),
    );
  }

  /** Older versions no longer verify. It only goes up, to the current version at most. */
  async setMinVersion(kid: string, min_version: number, signal: AbortSignal): Promise<KeyRecord> {
    return await this.#book.change((index) => {
      const record = index.record(kid);
      const head = headOf(record).version;
      if (min_version < record.min_version || min_version > head) {
        throw new RonError('conflict', `min_version is ${record.min_version} and goes up to ${head} at most`);
      }
      return { ...record, min_version };
    }, signal);
  }

  /** The first call starts the waiting period, the first one after it deletes. */
  async delete(kid: string, signal: AbortSignal): Promise<KeyVersion> {
    const version = await this.#changeVersion(kid, (now, name) => this.#nextOfDeletion(now, name), signal);
    if (version.deleted !== true || version.handle === undefined) return version;
    // Destroying it twice does no harm, forgetting to would: who asks again after a failure gets here again.
    await this.#backend.destroy(version.handle, signal);
    return await this.#changeVersion(kid, destroyed, signal);
  }

  /** Takes the first step of a deletion back. */
  async restore(kid: string, signal: AbortSignal): Promise<KeyVersion> {
    return await this.#changeVersion(kid, restored, signal);
  }

  #nextOfDeletion(version: KeyVersion, name: string): KeyVersion {
    const now_ms = sched.wall_ms();
    if (version.deleted === true) return version;
    if (version.deletable_ms === undefined) return { ...version, deletable_ms: now_ms + this.#delete_wait_ms() };
    if (version.deletable_ms > now_ms) {
      throw new RonError('conflict', `${formatKid(name, version.version)} can be deleted from then on`, {
        details: { deletable_ms: version.deletable_ms },
      });
    }
    // Written down before anything is destroyed: from here on nobody can take it back.
    return { ...version, deleted: true };
  }

  async #changeVersion(
    kid: string,
    edit: (version: KeyVersion, name: string) => KeyVersion,
    signal: AbortSignal,
  ): Promise<KeyVersion> {
    // Looked up once: without a number it is the current version, and another may be that by then.
    const { version: number } = this.#book.index.find(kid).version;
    const record = await this.#book.change((index) => {
      const now = index.record(kid);
      const version = versionOf(now, number)!;
      if (version === headOf(now))
        throw new RonError('conflict', 'the current version is not deleted: rotate the key first');
      return { ...now, versions: now.versions.with(number - 1, edit(version, now.name)) };
    }, signal);
    return versionOf(record, number)!;
  }

  /** New material that is not used after all must not stay behind. */
  async #orDestroy(handle: KeyHandle, work: () => Promise<KeyRecord>): Promise<KeyRecord> {
    try {
      return await work();
    } catch (error) {
      using cleanup = Deadline.after('destroy', CLEANUP_MS);
      await this.#backend.destroy(handle.key, cleanup.signal).catch(() => undefined);
      throw error;
    }
  }
}

function restored(version: KeyVersion): KeyVersion {
  if (version.deleted === true) throw new RonError('conflict', 'this version was deleted');
  const { deletable_ms: _, ...kept } = version;
  return kept;
}

function destroyed(version: KeyVersion): KeyVersion {
  const { handle: _, ...gone } = version;
  return gone;
}

function newVersion(version: number, handle: KeyHandle, made_by: OpMark | undefined): KeyVersion {
  return {
    version,
    handle: handle.key,
    public: handle.public,
    created_ms: sched.wall_ms(),
    ...(made_by === undefined ? {} : { made_by }),
  };
}

/** A random UUID (RFC 9562, version 4). */
function newUuid(): string {
  const bytes = Buffer.from(sched.randomBytes(16));
  bytes[6] = (bytes[6]! & 0x0f) | 0x40;
  bytes[8] = (bytes[8]! & 0x3f) | 0x80;
  return bytes.toString('hex').replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, '$1-$2-$3-$4-$5');
}
