/** A stored key: public facts, and the handles of its versions in the backend. It contains no secrets. */
import type { Alg, PublicPart } from '@ron/custody';
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

export interface KeyRecord {
  readonly name: string;
  readonly tenant: string;
  readonly purpose: string;
  readonly alg: Alg;
  readonly verify_mode: VerifyMode;
  /** Older versions do not verify. */
  readonly min_version: number;
  readonly imported: boolean;
  /** Ordered; the last one is current. Never empty. */
  readonly versions: readonly KeyVersion[];
}

export function headOf(record: KeyRecord): KeyVersion {
  return record.versions[record.versions.length - 1]!;
}

export function versionOf(record: KeyRecord, version: number): KeyVersion | undefined {
  // Versions are numbered from 1 without gaps: deleted versions keep their number.
  return record.versions[version - 1];
}
