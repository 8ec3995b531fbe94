/**
 * Operations on keys: create, import, rotate, set the policy, delete and restore.
 *
 * Contract: a key is reported only after the backend has created it and the registry has stored it. If the change is not
 * stored, the new key material is destroyed. Deleting a version takes two calls with a waiting period between them and never
 * affects the current version; a restored version is fully usable.
 * Bound: as the registry's and the backend's. Cancellation: by the signal, until the change is being written.
 */
import type { VerifyMode } from '@ron/proto';
import { ALGORITHMS, requirePublicPart, type Alg, type Backend, type KeyHandle } from '@ron/custody';
import { Deadline, RonError, sched } from '@ron/kernel';
import { formatKid, RAW_PURPOSE } from './kid.ts';
import { verifyOnly } from '../sign/signer.ts';
import { defaultMode, requireMode } from '../verify/modes.ts';
import type { KeyRegistry } from './key-registry.ts';
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

export class KeyOperations {
  readonly #registry: KeyRegistry;
  readonly #backend: Backend;
  readonly #delete_wait_ms: () => number;

  constructor(registry: KeyRegistry, backend: Backend, delete_wait_ms: () => number) {
    this.#registry = registry;
    this.#backend = backend;
    this.#delete_wait_ms = delete_wait_ms;
  }

  async create(request: CreateRequest, signal: AbortSignal): Promise<KeyRecord> {
    const { tenant, purpose, alg, verify_mode, min_version = 1 } = request;
    const name = `${tenant}/${purpose}/${alg}/${newUuid()}`;
    if (purpose === RAW_PURPOSE && ALGORITHMS[alg].use !== 'sign') {
      throw new RonError('validation', 'keys with purpose raw require a signature algorithm');
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
    return await this.#orDestroy(handle, () => this.#registry.change(() => record, signal));
  }

  async import(request: ImportRequest, signal: AbortSignal): Promise<KeyRecord> {
    const { tenant, alg, pubkey_b64 } = request;
    if (ALGORITHMS[alg].signs.length !== 1) {
      throw new RonError('validation', `public keys of ${alg} cannot be imported: use a single signature algorithm`);
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
    return await this.#registry.change(() => record, signal);
  }

  /** If `kid` has a version, it must be current: two clients that rotate the same version rotate once. */
  async rotate(kid: string, made_by: OpMark | undefined, signal: AbortSignal): Promise<KeyRecord> {
    const { record } = this.#registry.index.current(kid);
    if (record.imported) throw verifyOnly(record.name);
    const handle = await this.#backend.create(record.alg, record.name, signal);
    return await this.#orDestroy(handle, () =>
      this.#registry.change((index) => {
        // Look it up again: another rotation may have been first.
        const current = index.current(kid).record;
        const version = newVersion(headOf(current).version + 1, handle, made_by);
        return { ...current, versions: [...current.versions, version] };
      }, signal),
    );
  }

  /** Makes older versions fail verification. It only increases, at most to the current version. */
  async setMinVersion(kid: string, min_version: number, signal: AbortSignal): Promise<KeyRecord> {
    return await this.#registry.change((index) => {
      const record = index.record(kid);
      const head = headOf(record).version;
      if (min_version < record.min_version || min_version > head) {
        throw new RonError('conflict', `min_version must be between ${record.min_version} and ${head}`);
      }
      return { ...record, min_version };
    }, signal);
  }

  /** The first call starts the waiting period; the first call after it deletes. */
  async delete(kid: string, signal: AbortSignal): Promise<KeyVersion> {
    const version = await this.#changeVersion(kid, (now, name) => this.#nextOfDeletion(now, name), signal);
    if (version.deleted !== true || version.handle === undefined) return version;
    // Destroying is idempotent, and a retry after a failure gets here again.
    await this.#backend.destroy(version.handle, signal);
    return await this.#changeVersion(kid, destroyed, signal);
  }

  /** Cancels a deletion during its waiting period. */
  async restore(kid: string, signal: AbortSignal): Promise<KeyVersion> {
    return await this.#changeVersion(kid, restored, signal);
  }

  #nextOfDeletion(version: KeyVersion, name: string): KeyVersion {
    const now_ms = sched.wall_ms();
    if (version.deleted === true) return version;
    if (version.deletable_ms === undefined) return { ...version, deletable_ms: now_ms + this.#delete_wait_ms() };
    if (version.deletable_ms > now_ms) {
      throw new RonError('conflict', `${formatKid(name, version.version)} can be deleted after the waiting period`, {
        details: { deletable_ms: version.deletable_ms },
      });
    }
    // Stored before the key is destroyed: from here on the deletion cannot be cancelled.
    return { ...version, deleted: true };
  }

  async #changeVersion(
    kid: string,
    edit: (version: KeyVersion, name: string) => KeyVersion,
    signal: AbortSignal,
  ): Promise<KeyVersion> {
    // Resolve the version once: a kid without a version means the current one, which may change.
    const { version: number } = this.#registry.index.find(kid).version;
    const record = await this.#registry.change((index) => {
      const now = index.record(kid);
      const version = versionOf(now, number)!;
      if (version === headOf(now))
        throw new RonError('conflict', 'the current version cannot be deleted: rotate the key first');
      return { ...now, versions: now.versions.with(number - 1, edit(version, now.name)) };
    }, signal);
    return versionOf(record, number)!;
  }

  /** Destroys new key material if the change fails. */
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
  if (version.deleted === true) throw new RonError('conflict', 'the version was deleted');
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
