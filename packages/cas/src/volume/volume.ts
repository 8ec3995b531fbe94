/**
 * A volume: a place that stores records durably, such as a local directory or memory (amnesia).
 *
 * Replication, erasure coding, scrub and repair use only this interface. It has nothing that only a directory could
 * provide: puts that are durable when they resolve, verified reads, an inventory in order of ids that can be resumed at any
 * id, and a state that tells whether the volume accepts writes, with the reason.
 */
import type { RonError } from '@ron/kernel';
import { isGone, isReadOnly } from '@ron/log';
import type { VolumeCondition } from '@ron/proto';

/**
 * The kind of a look-up: content by the hash of its bytes, an object by its address, a stripe by its own id, a shard's
 * stripe by the id of the shard, a note by the id that its writer chose.
 */
export type Kind = 'content' | 'object' | 'stripe' | 'shard' | 'note';

export interface NewRecord {
  /** One of RecordType. */
  readonly type: number;
  readonly id: Uint8Array;
  readonly payload: Uint8Array;
  readonly meta?: Uint8Array;
  /** It replaces an object's record with another meta: every volume that has one must receive it. */
  readonly replaces?: boolean;
}

export interface StoredRecord {
  readonly type: number;
  readonly payload: Uint8Array;
  readonly meta: Uint8Array;
}

export type { VolumeCondition };

export interface VolumeState {
  readonly condition: VolumeCondition;
  /** The cause, for operators. Empty when ok. */
  readonly reason: string;
}

/** An entry of an inventory. */
export interface Held {
  readonly id: Uint8Array;
  /** One of RecordType. */
  readonly type: number;
  readonly payload_bytes: number;
  /** When it was put, in seconds of Unix time. */
  readonly put_s: number;
}

export interface ReclaimInit {
  /**
   * Whether a content is needed. Called in the same synchronous step that drops the content. Records of objects are always
   * kept. An error ends the run and keeps the current segment.
   */
  isNeeded(id: Uint8Array): boolean;
  /** Segments with a smaller part of needed bytes are rewritten. */
  live_ratio: number;
  /** A segment that is still being written is rewritten only when it holds this many bytes that are not needed. */
  seal_bytes_min: number;
  /**
   * Whether tombstones may be dropped once this volume has no superseded record of their id. False while an absent volume
   * could bring such a record back. Default: always true.
   */
  mayForgetRemovals?(): boolean;
  /** Waits until `bytes` more may be read or written. */
  pace(bytes: number): Promise<void>;
  onProgress?(reclaimed: Reclaimed): void;
  signal: AbortSignal;
}

export interface Reclaimed {
  /** Segments that were rewritten and removed. */
  readonly segments: number;
  readonly moved_bytes: number;
  readonly freed_bytes: number;
}

/** The position of a scrub pass. Opaque to callers; it can be serialized as JSON. */
export interface ScrubCursor {
  /** The segment and the offset in it. */
  readonly at: readonly [segment: number, offset: number];
  /** Where the log ended when the pass began. */
  readonly end: readonly [segment: number, offset: number];
  /** Damaged ranges. */
  readonly gaps: readonly (readonly [segment: number, offset: number, bytes: number])[];
  /** The current table of the index, once the log has been read; empty after the last. */
  readonly table?: string;
  /** The last id of that table, in hex. */
  readonly after?: string;
}

export interface ScrubStep {
  readonly cursor: ScrubCursor;
  /** The amount that was read. */
  readonly bytes: number;
  readonly records: number;
  /** Records that were found damaged. */
  readonly bad: number;
  /** Of those, the records that the volume cannot restore by itself. */
  readonly faults: readonly { readonly kind: Kind; readonly id: Uint8Array; readonly reason: string }[];
}

export interface VolumeStats {
  /** Bytes on disk or in memory. */
  readonly used_bytes: number;
  readonly segments: number;
  /** An upper bound of the number of contents. */
  readonly contents: number;
}

/** A damaged record. It is quarantined, never deleted. */
export interface DamagedRecord {
  readonly volume: string;
  readonly id_hex: string;
  readonly what: string;
}

export interface Volume extends AsyncDisposable {
  /** A UUID that stays the same when the directory moves. */
  readonly id: string;
  /** For operators and logs: the directory. Not an identity. */
  readonly name: string;
  /** Incremented at each writable open. Absent if the volume does not outlive its process. */
  readonly epoch?: number;
  /** The epoch on disk when the volume was opened. Lower than the last one seen: an older copy of the volume. */
  readonly epoch_before?: number;
  /** Volumes of one domain fail together. */
  readonly domain: string;
  readonly state: VolumeState;
  /**
   * The volume lost unidentifiable records, possibly removals. Its state of objects counts again after it was reconciled
   * with the others.
   */
  readonly isDoubtful?: boolean;
  /**
   * For a volume that consists of several: why its answers may be incomplete, with the names of the parts; undefined when
   * every part has answered completely. Nothing is reclaimed while it is set.
   */
  readonly incomplete?: string | undefined;
  /** The absent parts: they may have a content that is not found. Undefined when no part is absent. */
  readonly away?: string | undefined;
  /** Why an object that is not found may still be stored. Undefined when its absence is certain. */
  readonly absenceDoubt?: string | undefined;
  /** The operator accepts that such an object counts as not found. */
  readonly isDegradedAccepted?: boolean;
  /** Incremented whenever a part joins, leaves or changes its role. */
  readonly changes_total?: number | undefined;
  /** The name of the part that changed last. */
  readonly lastChange?: string | undefined;
  /**
   * Whether the volume no longer reads the payloads of a put once it has succeeded. False where a put resolves before the
   * last copy is written: then the caller must not change them.
   */
  readonly isDoneWithPayloads: boolean;

  /**
   * Stores a group of records atomically. They are durable when the call resolves; with `later`, after the next `sync`. A
   * record is visible to every other call once it is durable.
   */
  put(records: readonly NewRecord[], signal: AbortSignal, durability?: 'now' | 'later'): Promise<void>;

  /**
   * Makes earlier puts durable. Afterwards `isDurable` is false for each record that was lost. `needed`: the contents that
   * the caller relies on. A volume that consists of several does not wait for a slow part when the others have all of them;
   * then `isDurable` may be false for a readable content until it is put again.
   */
  sync(signal: AbortSignal, needed?: readonly Uint8Array[]): Promise<void>;

  /** Whether a record is stored durably and not known to be damaged. Only then may a put be answered with "exists". */
  isDurable(kind: Kind, id: Uint8Array): boolean;

  /**
   * A record, verified: content has the requested hash. Undefined when it is not stored. A damaged record is quarantined and
   * throws `integrity`. An object stays damaged until it is put again or removed: it is in inventories, and not durable. Any
   * other damaged record counts as not stored from then on.
   */
  get(kind: Kind, id: Uint8Array, signal: AbortSignal): Promise<StoredRecord | undefined>;

  /**
   * As `get`, without waiting for a disk. Undefined does not mean absent: the record may be on disk, or damaged. The bytes
   * are valid until the next call, on any volume: copy them to keep them.
   */
  getNow?(kind: Kind, id: Uint8Array): StoredRecord | undefined;

  /**
   * Contents in the order of `ids`, each verified, those that were read together in one batch. A batch is valid until the
   * next is requested: copy its bytes to keep them. Throws like `get`, or `not_found`.
   */
  getMany(ids: readonly Uint8Array[], signal: AbortSignal): AsyncIterable<readonly Uint8Array[]>;

  /**
   * Whether every copy of an object's record has this meta; false when one cannot be read. Absent from volumes
   * that keep one copy.
   */
  allHaveMeta?(id: Uint8Array, meta: Uint8Array, signal: AbortSignal): Promise<boolean>;

  has(kind: Kind, id: Uint8Array): boolean;
  isPinned(id: Uint8Array): boolean;

  /** Whether the last record of an object is its removal. False for an object that was never stored. */
  wasRemoved(id: Uint8Array): boolean;

  /** The record type of an entry, from memory; undefined when it is not stored. */
  typeOf(kind: Kind, id: Uint8Array): number | undefined;

  /** When it was put, in seconds of Unix time; undefined when it is not stored. */
  putTime_s(kind: Kind, id: Uint8Array): Promise<number | undefined>;

  /**
   * The records of a kind after the id `after`, ascending, at most `count`. A listing from the beginning has every record
   * that was put before; records that are put or removed meanwhile may be missing or present.
   */
  inventory(kind: Kind, after: Uint8Array | undefined, count: number): Promise<Held[]>;

  /**
   * As `inventory`, but only ids, 32 bytes each, as many as fit `into`, without records that are known to be damaged. Returns
   * their number. For walks over many millions.
   */
  listIds(kind: Kind, after: Uint8Array | undefined, into: Buffer): Promise<number>;

  /** The entry of an inventory; undefined when it is not stored. */
  held(kind: Kind, id: Uint8Array): Promise<Held | undefined>;

  /**
   * Scrubs the next part of the stored data, after a cursor or from the beginning, and handles damage; undefined at the end.
   * Absent from volumes whose bytes cannot decay.
   */
  scrub?(after: ScrubCursor | undefined, signal: AbortSignal): Promise<ScrubStep | undefined>;

  /** Reclaims space. One run at a time. */
  reclaim(init: ReclaimInit): Promise<Reclaimed>;

  stats(): VolumeStats;
  close(): Promise<void>;
}

export interface VolumeEvents {
  onDamage?(record: DamagedRecord): void;
  onState?(state: VolumeState): void;
}

export function conditionOf(error: RonError): VolumeCondition {
  if (error.code === 'storage_full') return 'full';
  if (isReadOnly(error.cause)) return 'read_only';
  return isGone(error.cause) ? 'gone' : 'failed';
}
