/**
 * Operations that make keys and versions: create, import and rotate.
 *
 * Contract: a key is reported only after the backend has created it and the registry has stored it. If the change is not
 * stored, the new key material is destroyed. A key that is not enabled is not rotated.
 * Bound: as the registry's and the backend's. Cancellation: by the signal, until the change is being written.
 */
import type { VerifyMode } from '@ron/proto';
import { ALGORITHMS, requirePublicPart, type Alg, type Backend, type KeyHandle } from '@ron/custody';
import { Deadline, RonError, sched } from '@ron/kernel';
import { RAW_PURPOSE } from './kid.ts';
import { verifyOnly } from '../sign/signer.ts';
import { defaultMode, requireMode } from '../verify/modes.ts';
import type { KeyRegistry } from './key-registry.ts';
import {
  headOf,
  requireEnabled,
  requireRotatable,
  type KeyRecord,
  type KeyVersion,
  type OpMark,
} from './key-record.ts';

export interface CreateRequest {
  readonly tenant: string;
  readonly purpose: string;
  readonly alg: Alg;
  readonly verify_mode?: VerifyMode | undefined;
  readonly min_version?: number | undefined;
  /** False: the key never gets a second version, for verifiers that know its public key only. Default true. */
  readonly rotate?: boolean | undefined;
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

  constructor(registry: KeyRegistry, backend: Backend) {
    this.#registry = registry;
    this.#backend = backend;
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
      ...(request.rotate === false && { rotate: false }),
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
    requireEnabled(record);
    requireRotatable(record);
    const handle = await this.#backend.create(record.alg, record.name, signal);
    return await this.#orDestroy(handle, () =>
      this.#registry.change((index) => {
        // Look it up again: another rotation or a deletion may have been first.
        const current = index.current(kid).record;
        requireEnabled(current);
        const version = newVersion(headOf(current).version + 1, handle, made_by);
        return { ...current, versions: [...current.versions, version] };
      }, signal),
    );
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
