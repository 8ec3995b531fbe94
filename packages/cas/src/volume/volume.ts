/**
 * A volume: a place that holds records durably. A local directory, memory (amnesia), and one day another node.
 *
 * Replication, erasure coding, scrub and repair work on volumes alone. So the interface has what they need and nothing
 * that only a directory could give: puts that are durable when they resolve, reads that are verified, an inventory in
 * order of ids that can be resumed anywhere, and a state that says whether it takes writes, with the reason.
 */
import type { RonError } from '@ron/kernel';
import { isGone, isReadOnly } from '@ron/log';

/**
 * What is looked for: content by the hash of its bytes, an object by its address, a stripe by its own id or by that of one
 * of its shards, a note by the id that its writer chose.
 */
export type Kind = 'content' | 'object' | 'stripe' | 'shard' | 'note';

export interface NewRecord {
  /** One of RecordType. */
  readonly type: number;
  readonly id: Uint8Array;
  readonly payload: Uint8Array;
  readonly meta?: Uint8Array;
  /** It supersedes an object's record that is stored with another meta: every volume that holds one must get it. */
  readonly replaces?: boolean;
}

export interface StoredRecord {
  readonly type: number;
  readonly payload: Uint8Array;
  readonly meta: Uint8Array;
}

/** `gone`: what was opened is not there any more. */
export type VolumeCondition = 'ok' | 'full' | 'read_only' | 'failed' | 'gone';

export interface VolumeState {
  readonly condition: VolumeCondition;
  /** For people: what happened, and to what. Empty when ok. */
  readonly reason: string;
}

/** A line of an inventory. */
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
   * Whether a content is needed. The call and the decision are one step. Records of objects stay in any case. An error
   * that it throws ends the run; the segment at hand stays.
   */
  isNeeded(id: Uint8Array): boolean;
  /** Segments with a smaller part of needed bytes are rewritten. */
  live_ratio: number;
  /** A segment that is still being written is rewritten only when it holds this many bytes that are not needed. */
  seal_bytes_min: number;
  /**
   * Whether tombstones may be dropped once this volume holds no superseded record of their id. False while a volume that is
   * away could bring such a record back. Default: always true.
   */
  mayForgetRemovals?(): boolean;
  /** Waits until `bytes` more may be read or written. */
  pace(bytes: number): Promise<void>;
  onProgress?(reclaimed: Reclaimed): void;
  signal: AbortSignal;
}

export interface Reclaimed {
  /** Segments that were rewritten and are gone. */
  readonly segments: number;
  readonly moved_bytes: number;
  readonly freed_bytes: number;
}

/** The position of a scrub pass. Opaque to callers; it can be serialized as JSON. */
export interface ScrubCursor {
  /** The segment, and where in it. */
  readonly at: readonly [segment: number, offset: number];
  /** Where the log ended when the pass began. */
  readonly end: readonly [segment: number, offset: number];
  /** Damaged stretches. */
  readonly gaps: readonly (readonly [segment: number, offset: number, bytes: number])[];
  /** The table of the index that it is at, once the log has been read; empty after the last. */
  readonly table?: string;
  /** The last id of that table, in hex. */
  readonly after?: string;
}

export interface ScrubStep {
  readonly cursor: ScrubCursor;
  /** What it read. */
  readonly bytes: number;
  readonly records: number;
  /** Records that were found damaged. */
  readonly bad: number;
  /** Of those, the ones that the volume cannot make whole by itself. */
  readonly faults: readonly { readonly kind: Kind; readonly id: Uint8Array; readonly reason: string }[];
}

export interface VolumeStats {
  /** Bytes on disk or in memory. */
  readonly used_bytes: number;
  readonly segments: number;
  /** At most so many contents are held. */
  readonly contents: number;
}

/** A record that is not what it should be. It is kept aside, never deleted. */
export interface DamagedRecord {
  readonly volume: string;
  readonly id_hex: string;
  readonly what: string;
}

export interface Volume extends AsyncDisposable {
  /** A UUID that the volume keeps wherever it lies. */
  readonly id: string;
  /** For people and logs: the directory, never an identity. */
  readonly name: string;
  /** Grows by one at each writable open. Absent where a volume does not outlive its process. */
  readonly epoch?: number;
  /** The epoch on disk when the volume was opened. Lower than the last one seen: an older copy of the volume. */
  readonly epoch_before?: number;
  /** Volumes of one domain fail together. */
  readonly domain: string;
  readonly state: VolumeState;
  /**
   * Records of it were lost in a way that leaves no trace of what they were: a removal may be among them. What it says about
   * objects counts again when it has been told everything.
   */
  readonly isDoubtful?: boolean;
  /**
   * Of a volume that is made of several: why its answers may be incomplete, with the names of the parts; undefined when every
   * part has answered completely. Nothing is reclaimed while it is set.
   */
  readonly incomplete?: string | undefined;
  /** The parts that are away: a content that is not found may be there. Undefined when all parts are here. */
  readonly away?: string | undefined;
  /** Why an object that is not found may still be stored. Undefined when its absence is certain. */
  readonly absenceDoubt?: string | undefined;
  /** The operator accepts that such an object counts as not found. */
  readonly isDegradedAccepted?: boolean;
  /** Grows whenever a part comes, goes or changes its role. */
  readonly changes_total?: number | undefined;
  /** The name of the part that changed last. */
  readonly lastChange?: string | undefined;
  /**
   * Whether the volume no longer reads the payloads of a put once it has succeeded. False where a put resolves before the
   * last copy is written: then the caller must not change them.
   */
  readonly isDoneWithPayloads: boolean;

  /**
   * Stores records that stand or fall together; durable when it resolves, unless `later` leaves that to `sync`. A record
   * is visible to every other call once it is durable.
   */
  put(records: readonly NewRecord[], signal: AbortSignal, durability?: 'now' | 'later'): Promise<void>;

  /**
   * Makes earlier puts durable. Afterwards `isDurable` is false for each record that was lost. `needed`: the contents that
   * the caller relies on. A volume that is made of several leaves a slow part behind when the others have all of them; then
   * `isDurable` may be false for one that can be read, and is true once it was put again.
   */
  sync(signal: AbortSignal, needed?: readonly Uint8Array[]): Promise<void>;

  /** Whether it is here, not known to be damaged, and survives a crash. Only then may a put be answered with "exists". */
  isDurable(kind: Kind, id: Uint8Array): boolean;

  /**
   * A record, verified: content has the hash that it is asked for by. Undefined when it is not here. Throws `integrity`
   * when it is here and damaged; then it is quarantined. An object stays damaged until it is put again or removed: it is in
   * inventories, and not durable. Anything else is not here from then on.
   */
  get(kind: Kind, id: Uint8Array, signal: AbortSignal): Promise<StoredRecord | undefined>;

  /**
   * The same without waiting for a disk. Undefined says nothing: it may be here, and damaged as well. Its bytes are valid
   * until the next call, on any volume: copy them to keep them.
   */
  getNow?(kind: Kind, id: Uint8Array): StoredRecord | undefined;

  /**
   * Contents in the order of `ids`, each verified, those that were read together in one batch. A batch is valid until the
   * next is requested: copy its bytes to keep them. Throws like `get`, or `not_found`.
   */
  getMany(ids: readonly Uint8Array[], signal: AbortSignal): AsyncIterable<readonly Uint8Array[]>;

  /**
   * Whether every copy of an object's record has this meta; false when one cannot be read. Volumes that keep one copy do not
   * have this call.
   */
  allHaveMeta?(id: Uint8Array, meta: Uint8Array, signal: AbortSignal): Promise<boolean>;

  has(kind: Kind, id: Uint8Array): boolean;
  isPinned(id: Uint8Array): boolean;

  /** Whether the last word about an object is that it was removed. One that was never here was not removed. */
  wasRemoved(id: Uint8Array): boolean;

  /** The record type of an entry, from memory; undefined when it is not here. */
  typeOf(kind: Kind, id: Uint8Array): number | undefined;

  /** When it was put, in seconds of Unix time; undefined when it is not here. */
  putTime_s(kind: Kind, id: Uint8Array): Promise<number | undefined>;

  /**
   * What is held of a kind after the id `after`, ascending, at most `count`. A listing from the beginning has everything
   * that was put before; what is put or removed while one reads on may be in it or not.
   */
  inventory(kind: Kind, after: Uint8Array | undefined, count: number): Promise<Held[]>;

  /**
   * As `inventory`, but ids alone, without what is known to be damaged, 32 bytes each, as many as fit `into`: how many. For
   * walks over many millions.
   */
  listIds(kind: Kind, after: Uint8Array | undefined, into: Buffer): Promise<number>;

  /** The line of an inventory; undefined when it is not here. */
  held(kind: Kind, id: Uint8Array): Promise<Held | undefined>;

  /**
   * Reads the next stretch of everything that is kept, after a cursor or from the beginning, and sees to what is damaged;
   * undefined at the end. A volume whose bytes cannot rot has no such call.
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
