/** A stored key: public facts, and the handles of its versions in the backend. It contains no secrets. */
import type { Alg, PublicPart } from '@ron/custody';
import { RonError } from '@ron/kernel';
import type { VerifyMode } from '@ron/proto';

export interface OpMark {
  readonly op_id: string;
  /** Detects the reuse of an id for another request. */
  readonly request_hash: string;
}

export interface KeyVersion {
  readonly version: number;
  /** The key's handle in the backend; undefined for an imported key and after a deleted version was destroyed. */
  readonly handle?: string;
  readonly public: readonly PublicPart[];
  /** Unix time in ms. */
  readonly created_ms: number;
  /** The operation that created it, if it had an id; makes the operation idempotent across crashes. */
  readonly made_by?: OpMark;
  /** Set by the first call of a deletion: the second may follow from then on. */
  readonly deletable_ms?: number;
  /** Set by the second call, permanently. */
  readonly deleted?: true;
}

/** A raise of `min_version` and the time from which it applies to unwrap and derive. */
export interface Raise {
  readonly min_version: number;
  /** Unix time in ms. */
  readonly effective_ms: number;
}

export interface KeyRecord {
  readonly name: string;
  readonly tenant: string;
  readonly purpose: string;
  readonly alg: Alg;
  readonly verify_mode: VerifyMode;
  /** Older versions do not verify. */
  readonly min_version: number;
  /** Raises, ascending, and the version in force before them. Absent: `min_version` applies to unwrap and derive too. */
  readonly raising?: { readonly from: number; readonly steps: readonly Raise[] };
  /** Set at creation, permanently: the key has one version. Absent: it may be rotated. */
  readonly rotate?: false;
  readonly imported: boolean;
  /** The key only verifies. */
  readonly disabled?: true;
  /** Set by the first call that deletes the whole key: the second may follow from then on. */
  readonly deletable_ms?: number;
  /** Set by the second call, permanently. The public parts stay. */
  readonly deleted?: true;
  /** Ordered; the last one is current. Never empty. */
  readonly versions: readonly KeyVersion[];
}

/** A key without its versions. */
export type KeyFields = Omit<KeyRecord, 'versions'>;

/** The facts about all versions of a key that a list shows. Stored with the key, so that a list does not read them all. */
export interface VersionSummary {
  /** Versions are numbered from 1 to this. */
  readonly count: number;
  /** The numbers of deleted versions. */
  readonly deleted: readonly number[];
  /** The numbers of the versions in the waiting period of their deletion, and its end. */
  readonly deleting: readonly (readonly [version: number, deletable_ms: number])[];
  /** The backend holds key material of a version. */
  readonly has_material: boolean;
}

export function summaryOf({ versions }: KeyRecord): VersionSummary {
  return {
    count: versions.length,
    deleted: versions.filter(({ deleted }) => deleted === true).map(({ version }) => version),
    deleting: versions.flatMap(({ version, deleted, deletable_ms }) =>
      deletable_ms === undefined || deleted === true ? [] : [[version, deletable_ms] as const],
    ),
    has_material: versions.some(({ handle }) => handle !== undefined),
  };
}

/**
 * - `deleting`: in the waiting period of its deletion; it can be restored.
 * - `destroying`: deleted, but the backend may still hold key material. Repeat the deletion.
 */
export type KeyState = 'enabled' | 'disabled' | 'deleting' | 'destroying' | 'deleted';

export function stateOf({ disabled, deletable_ms, deleted }: KeyFields, { has_material }: VersionSummary): KeyState {
  if (deleted === true) return has_material ? 'destroying' : 'deleted';
  if (deletable_ms !== undefined) return 'deleting';
  return disabled === true ? 'disabled' : 'enabled';
}

/** Throws `conflict` if the key is deleted or about to be. */
export function requireKept({ name, deletable_ms, deleted }: KeyRecord): void {
  if (deleted === true) throw new RonError('conflict', `${name} was deleted`);
  if (deletable_ms !== undefined)
    throw new RonError('conflict', `${name} is being deleted: restore the whole key first`);
}

/** Throws `conflict` unless the key may use and create key material. */
export function requireEnabled(record: KeyRecord): void {
  requireKept(record);
  if (record.disabled === true) throw new RonError('conflict', `${record.name} is disabled: enable it first`);
}

/** Throws `conflict` if the key must keep its only version. */
export function requireRotatable({ name, rotate }: KeyRecord): void {
  if (rotate !== false) return;
  throw new RonError('conflict', `${name} was created with rotate: false: create a new key instead`);
}

export function headOf(record: KeyRecord): KeyVersion {
  return record.versions[record.versions.length - 1]!;
}

export function versionOf(record: KeyRecord, version: number): KeyVersion | undefined {
  // Versions are numbered from 1 without gaps: deleted versions keep their number.
  return record.versions[version - 1];
}
