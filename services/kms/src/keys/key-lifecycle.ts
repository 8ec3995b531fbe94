/**
 * Operations that withdraw keys and versions: policy, disable, enable, delete and restore.
 *
 * Contract: a deletion takes two calls with a waiting period between them. It is stored before key material is destroyed, so
 * a deletion that was interrupted leaves nothing usable and is resumed by the same call. The current version is deleted only
 * together with its key. A key whose deletion has begun is disabled at once; a restored key is as it was before.
 * Bound: `DESTROYED_AT_ONCE` calls of the backend at a time. Cancellation: by the signal, between changes.
 */
import type { Backend } from '@ron/custody';
import { RonError, sched } from '@ron/kernel';
import { formatKid, parseKid } from './kid.ts';
import { headOf, requireKept, versionOf, type KeyRecord, type KeyVersion } from './key-record.ts';
import type { KeyRegistry } from './key-registry.ts';
import { withMinVersion } from './min-version.ts';

const DESTROYED_AT_ONCE = 64;

/** A key, or one version of it, after a step of its deletion. */
export interface Deletion {
  readonly record: KeyRecord;
  /** Undefined if the whole key is deleted. */
  readonly version?: KeyVersion;
}

/** The part of a deletion that a key and a version have in common. */
interface Deletable {
  readonly deletable_ms?: number;
  readonly deleted?: true;
}

export class KeyLifecycle {
  readonly #registry: Pick<KeyRegistry, 'index' | 'change'>;
  readonly #backend: Pick<Backend, 'destroy'>;
  readonly #delete_wait_ms: () => number;

  constructor(
    registry: Pick<KeyRegistry, 'index' | 'change'>,
    backend: Pick<Backend, 'destroy'>,
    delete_wait_ms: () => number,
  ) {
    this.#registry = registry;
    this.#backend = backend;
    this.#delete_wait_ms = delete_wait_ms;
  }

  /** See min-version.ts. */
  async setMinVersion(kid: string, min_version: number, signal: AbortSignal): Promise<KeyRecord> {
    return await this.#registry.change((index) => {
      const record = kept(index.record(kid));
      return withMinVersion(record, min_version, sched.wall_ms(), this.#delete_wait_ms());
    }, signal);
  }

  /** Once it resolves, the key signs, wraps, unwraps and derives nothing. Idempotent. */
  async disable(kid: string, signal: AbortSignal): Promise<KeyRecord> {
    return await this.#registry.change((index) => {
      const record = kept(index.record(kid));
      return record.disabled === true ? record : { ...record, disabled: true };
    }, signal);
  }

  async enable(kid: string, signal: AbortSignal): Promise<KeyRecord> {
    return await this.#registry.change((index) => {
      const record = kept(index.record(kid));
      const { disabled, ...enabled } = record;
      return disabled === undefined ? record : enabled;
    }, signal);
  }

  /** The first call starts the waiting period; the first call after it deletes. Deletes the version that `kid` names. */
  async deleteVersion(kid: string, signal: AbortSignal): Promise<Deletion> {
    const edit = (version: KeyVersion, name: string): KeyVersion => this.#nextOfDeletion(version, name);
    const deletion = await this.#changeVersion(kid, edit, signal);
    const { version } = deletion;
    if (version.deleted !== true || version.handle === undefined) return deletion;
    // Destroying is idempotent, and a retry after a failure gets here again.
    await this.#backend.destroy(version.handle, signal);
    return await this.#changeVersion(kid, withoutHandle, signal);
  }

  /** As `deleteVersion`, for all versions. */
  async deleteKey(kid: string, signal: AbortSignal): Promise<Deletion> {
    let record = await this.#registry.change((index) => {
      const found = index.record(kid);
      return this.#nextOfDeletion(found, found.name);
    }, signal);
    while (record.deleted === true) {
      const batch = record.versions.filter(({ handle }) => handle !== undefined).slice(0, DESTROYED_AT_ONCE);
      if (batch.length === 0) break;
      await Promise.all(batch.map(({ handle }) => this.#backend.destroy(handle!, signal)));
      const destroyed = new Set(batch.map(({ version }) => version));
      record = await this.#registry.change((index) => {
        const now = index.record(kid);
        return {
          ...now,
          versions: now.versions.map((each) => (destroyed.has(each.version) ? withoutHandle(each) : each)),
        };
      }, signal);
    }
    return { record };
  }

  /** Cancels the deletion of a version during its waiting period. */
  async restoreVersion(kid: string, signal: AbortSignal): Promise<Deletion> {
    return await this.#changeVersion(kid, restored, signal);
  }

  /** Cancels the deletion of a key during its waiting period. */
  async restoreKey(kid: string, signal: AbortSignal): Promise<Deletion> {
    return { record: await this.#registry.change((index) => restored(index.record(kid)), signal) };
  }

  #nextOfDeletion<D extends Deletable>(target: D, name: string): D {
    const now_ms = sched.wall_ms();
    if (target.deleted === true) return target;
    if (target.deletable_ms === undefined) return { ...target, deletable_ms: now_ms + this.#delete_wait_ms() };
    if (target.deletable_ms > now_ms) {
      const { deletable_ms } = target;
      const from = new Date(deletable_ms).toISOString();
      throw new RonError('conflict', `${name} can be deleted after the waiting period, from ${from}`, {
        details: { deletable_ms },
      });
    }
    // Stored before the key is destroyed: from here on the deletion cannot be cancelled.
    return { ...target, deleted: true };
  }

  async #changeVersion(
    kid: string,
    edit: (version: KeyVersion, name: string) => KeyVersion,
    signal: AbortSignal,
  ): Promise<Required<Deletion>> {
    const { version: number } = parseKid(kid);
    if (number === undefined) throw new RonError('validation', 'the kid names no version: append #v and its number');
    const record = await this.#registry.change((index) => {
      const { record: now, version } = index.find(kid);
      kept(now);
      if (version === headOf(now)) {
        throw new RonError('conflict', 'the current version cannot be deleted: rotate the key first');
      }
      const name = formatKid(now.name, number);
      return { ...now, versions: now.versions.with(number - 1, edit(version, name)) };
    }, signal);
    return { record, version: versionOf(record, number)! };
  }
}

/** Refuses changes during a deletion: a restored key is as it was before. */
function kept(record: KeyRecord): KeyRecord {
  requireKept(record);
  return record;
}

function restored<D extends Deletable>(target: D): D {
  if (target.deleted === true) throw new RonError('conflict', 'it was deleted and cannot be restored');
  const { deletable_ms, ...left } = target;
  return deletable_ms === undefined ? target : (left as D);
}

function withoutHandle(version: KeyVersion): KeyVersion {
  const { handle: _, ...left } = version;
  return left;
}
