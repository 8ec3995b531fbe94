/**
 * The stored record of the audience root: the handles of its versions in the backend. It contains no secrets.
 *
 * Contract: the record is not a key of any user. Requests about keys cannot name its tenant (routes/caller.ts).
 */
import { AUDIENCE_ROOT } from '@ron/auth';
import { parseKid } from '../keys/kid.ts';
import type { KeyRecord } from '../keys/key-record.ts';
import type { KeyRegistry } from '../keys/key-registry.ts';

export interface AudienceRootVersion {
  readonly version: number;
  /** The key's handle in the backend; absent if the version was destroyed. */
  readonly handle?: string;
  /** Unix time in ms. */
  readonly created_ms: number;
}

export interface AudienceRoot {
  /** Older versions derive nothing. */
  readonly min_version: number;
  /** Numbered from 1 without gaps; the last one is current. Never empty. */
  readonly versions: readonly AudienceRootVersion[];
}

/** Stores the record durably. There is one writer at a time. */
export interface AudienceRootStore {
  /** Undefined before the root was created. */
  readonly value: AudienceRoot | undefined;
  replace(next: AudienceRoot, signal: AbortSignal): Promise<unknown>;
}

/** A store in the registry of keys, under the reserved name. */
export function rootStoreIn(registry: KeyRegistry): AudienceRootStore {
  return {
    get value() {
      const record = registry.index.get(AUDIENCE_ROOT);
      return record === undefined ? undefined : rootOf(record);
    },
    replace: (next, signal) => registry.change(() => recordOf(next), signal),
  };
}

/** The root in a record of the registry. */
export function rootOf({ min_version, versions }: KeyRecord): AudienceRoot {
  return {
    min_version,
    versions: versions.map(({ version, handle, created_ms }) => ({
      version,
      created_ms,
      ...(handle !== undefined && { handle }),
    })),
  };
}

function recordOf({ min_version, versions }: AudienceRoot): KeyRecord {
  const { name, tenant, purpose, alg } = parseKid(AUDIENCE_ROOT);
  const record = { name, tenant, purpose, alg, verify_mode: 'and', min_version, imported: false } as const;
  return { ...record, versions: versions.map((version) => ({ ...version, public: [] })) };
}
