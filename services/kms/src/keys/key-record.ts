/** A key as it is kept: public facts and the names under which the backend knows its versions. Nothing here is secret. */
import type { Alg, PublicPart } from '@ron/custody';
import type { VerifyMode } from '@ron/proto';

export interface OpMark {
  readonly op_id: string;
  /** Of the request, so that the same id with another request is found out. */
  readonly request_hash: string;
}

export interface KeyVersion {
  readonly version: number;
  /** The key in its backend; undefined for an imported public key, and when a deleted version was destroyed there. */
  readonly handle?: string;
  readonly public: readonly PublicPart[];
  /** Unix time. */
  readonly created_ms: number;
  /** What made it, when that had an id: so that it is made once, whatever happens in between. */
  readonly made_by?: OpMark;
  /** Set by the first step of a deletion: the second may come from then on. */
  readonly deletable_ms?: number;
  /** Set by the second step, for ever. */
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
  /** In order; the last one is current. Never empty. */
  readonly versions: readonly KeyVersion[];
}

/** What is written down. */
export interface KeyDocument {
  readonly format: 1;
  readonly keys: readonly KeyRecord[];
}

export const EMPTY_DOCUMENT: KeyDocument = { format: 1, keys: [] };

export function headOf(record: KeyRecord): KeyVersion {
  return record.versions[record.versions.length - 1]!;
}

export function versionOf(record: KeyRecord, version: number): KeyVersion | undefined {
  // Versions are numbered from 1 without gaps: deleted ones leave their place.
  return record.versions[version - 1];
}
