/**
 * The stored record of the audience root: the handles of its versions in the backend. It contains no secrets.
 *
 * Contract: the record is not a key of any user. Requests about keys cannot name its tenant (routes/caller.ts).
 */
import { documentOf, Table, type Draft, type RecordStore } from '@ron/custody/store';
import type { KeyRecord } from '../keys/key-record.ts';
import { META } from '../vault/tables.ts';

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

const ROOTS = new Table<AudienceRoot>(META);
const ROOT_KEY = 'audience_root';

export function openRootStore(store: RecordStore): AudienceRootStore {
  return documentOf(store, ROOTS, ROOT_KEY);
}

/** Stores the root that the earlier format kept among the keys. */
export function putEarlierRoot(draft: Draft, { min_version, versions }: KeyRecord): void {
  const kept = versions.map(({ version, handle, created_ms }) => ({
    version,
    created_ms,
    ...(handle !== undefined && { handle }),
  }));
  ROOTS.put(draft, ROOT_KEY, { min_version, versions: kept });
}
