/**
 * Derives the keys with which services verify capabilities, and rotates and retires their root.
 *
 * Contract: the root is created on first use, once, and never leaves the backend. The key of an audience depends on the
 * version of the root, the audience and nothing else. A retired version derives nothing and stays retired. These
 * operations do not depend on the audit log: services start, and a root is retired, while the log is damaged or full.
 * `record` is called for each operation that changed something or returned a key.
 * Bound: one change at a time; `WAITING_MAX` more may wait. Overflow: `busy`.
 * Cancellation: by the signal, until the change is being written. A handle without a record is destroyed.
 */
import { hash } from 'node:crypto';
import { AUDIENCE_ROOT, audienceLabel, type Derived, type KeyDeriver, type RootState } from '@ron/auth';
import { assert, Deadline, Mutex, RonError, sched } from '@ron/kernel';
import type { Backend } from '@ron/custody';
import type { Service } from '@ron/proto';
import type { AudienceRoot, AudienceRootStore, AudienceRootVersion } from './root-store.ts';

export type RootOp = 'create' | 'derive' | 'rotate' | 'retire';

/** A completed operation. */
export interface RootEvent<C> {
  readonly op: RootOp;
  /** The version that was created or used; with `retire` the first that stays valid. */
  readonly version: number;
  /** Only with `derive`. */
  readonly label?: string;
  /** Undefined: kms itself. */
  readonly caller: C | undefined;
}

export interface AudienceKeysInit<C> {
  readonly store: AudienceRootStore;
  readonly backend: Pick<Backend, 'create' | 'derive' | 'destroy'>;
  /** Called before each operation of a caller. */
  readonly begin: (signal: AbortSignal) => Promise<void>;
  readonly record: (event: RootEvent<C>) => void;
}

const ALG = 'hmac-sha256';
const SECRET_BYTES = 32;
const WAITING_MAX = 64;
const CLEANUP_MS = 2000;
const ID_CHARS = 16;

export class AudienceKeys<C> {
  readonly #init: AudienceKeysInit<C>;
  readonly #changes = new Mutex('audience_root', { waiters_max: WAITING_MAX });

  constructor(init: AudienceKeysInit<C>) {
    this.#init = init;
  }

  /** As seen by the key source of kms itself. */
  get deriver(): KeyDeriver {
    return {
      state: (signal) => this.state(signal),
      derive: (audience, version, signal) => this.derive(audience, version, undefined, signal),
    };
  }

  async state(signal: AbortSignal): Promise<RootState> {
    const { versions, min_version } = await this.#root(signal);
    const current = versions.at(-1)!;
    // Handles are unique in a backend, so another root has another id. The handle itself stays here.
    const root_id = hash('sha256', `ron-kms/root\n${current.handle}\n${current.created_ms}`, 'hex').slice(0, ID_CHARS);
    return { version: current.version, version_min: min_version, root_id };
  }

  /** `version` undefined: the current one. */
  async derive(
    audience: Service,
    version: number | undefined,
    caller: C | undefined,
    signal: AbortSignal,
  ): Promise<Derived> {
    const root = await this.#root(signal);
    const found = version === undefined ? root.versions.at(-1)! : root.versions[version - 1];
    if (found === undefined) throw new RonError('not_found', `the audience root has no version ${version}`);
    const { handle } = found;
    if (found.version < root.min_version || handle === undefined) {
      throw new RonError('conflict', `version ${found.version} of the audience root is retired`);
    }
    const label = audienceLabel(audience, found.version);
    if (caller !== undefined) await this.#init.begin(signal);
    const secret = await this.#init.backend.derive(handle, label, SECRET_BYTES, signal);
    this.#init.record({ op: 'derive', version: found.version, label, caller });
    return { version: found.version, version_min: root.min_version, secret };
  }

  /**
   * Creates the version after `version`, which must be current. Older ones stay valid until they are retired. Idempotent:
   * if the next version exists and is current, nothing changes.
   */
  async rotate(version: number, caller: C | undefined, signal: AbortSignal): Promise<RootState> {
    await this.#root(signal);
    await this.#init.begin(signal);
    await this.#changes.run(signal, async () => {
      const current = this.#init.store.value!.versions.length;
      if (current === version + 1) return;
      if (current !== version) throw new RonError('conflict', `the audience root is at version ${current}`);
      await this.#add('rotate', caller, signal);
    });
    return await this.state(signal);
  }

  /** Makes all versions below `min_version` invalid, permanently. */
  async retire(min_version: number, caller: C | undefined, signal: AbortSignal): Promise<RootState> {
    await this.#root(signal);
    await this.#init.begin(signal);
    await this.#changes.run(signal, async () => {
      const root = this.#init.store.value!;
      const current = root.versions.at(-1)!.version;
      if (min_version < root.min_version || min_version > current) {
        throw new RonError('conflict', `min_version must be between ${root.min_version} and ${current}`);
      }
      await this.#init.store.replace({ ...root, min_version }, signal);
      this.#init.record({ op: 'retire', version: min_version, caller });
    });
    return await this.state(signal);
  }

  async #root(signal: AbortSignal): Promise<AudienceRoot> {
    const { store } = this.#init;
    if (store.value === undefined) {
      await this.#changes.run(signal, async () => {
        if (store.value === undefined) await this.#add('create', undefined, signal);
      });
    }
    assert(store.value !== undefined, 'the root was created');
    return store.value;
  }

  async #add(op: 'create' | 'rotate', caller: C | undefined, signal: AbortSignal): Promise<void> {
    const { store, backend, record } = this.#init;
    const before = store.value ?? { min_version: 1, versions: [] as readonly AudienceRootVersion[] };
    const version = before.versions.length + 1;
    const { key: handle } = await backend.create(ALG, AUDIENCE_ROOT, signal);
    const made = { version, handle, created_ms: sched.wall_ms() };
    try {
      await store.replace({ ...before, versions: [...before.versions, made] }, signal);
    } catch (error) {
      using cleanUp = Deadline.after('cleanup', CLEANUP_MS);
      // The change failed for its own reason, which the caller gets.
      await backend.destroy(handle, cleanUp.signal).catch(() => undefined);
      throw error;
    }
    record({ op, version, caller });
  }
}
