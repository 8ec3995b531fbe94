/** The database of the index, as the other parts use it. Every call runs in a thread and has a deadline. */
import type { Address, AnnounceEntry, AnnounceRange } from '@ron/proto';

/** A verified record as it is stored. */
export interface StoredRecord {
  /** The public key that signed it, in hex. */
  readonly key: string;
  readonly label: string;
  readonly seq: number;
  /** Unix seconds. */
  readonly not_after: number;
  /** The CBOR bytes. */
  readonly record: Uint8Array;
  readonly signature: Uint8Array;
  /** BLAKE3 of the record. */
  readonly hash: Uint8Array;
}

/** The current record of a name, and the one that contradicts it if the name is forked. */
export interface StoredName extends StoredRecord {
  readonly rival: StoredRecord | undefined;
  /** Whether it came from the log of this node, and not from the network. */
  readonly isOwn: boolean;
  /** How many older records are no longer in the history, which keeps the newest 64. The log has all own ones. */
  readonly dropped: number;
}

/** A position in a list of names. */
export interface NamePosition {
  readonly label: string;
  readonly key: string;
}

export interface SaveSeenInit {
  /** Never forgotten. */
  readonly isTrusted: boolean;
  /** The hash of the current record; undefined if there is none. */
  readonly replaces: Uint8Array | undefined;
}

export interface TrustedKey {
  readonly prefix: string;
  readonly key: string;
}

/**
 * One change of the log of this node, as the database applies it.
 *
 * `name`: the name is own from now on. A record with a higher seq than the current one replaces it, which moves to the history,
 * and ends a conflict. One with the same seq and another hash is a fork: the smaller hash becomes current, the other the rival.
 * A lower seq changes nothing else. A record with `moved_to` wins in any case and is never replaced. `fork`: sets the current
 * record and its rival, unless the current one takes precedence.
 */
export type LogChange =
  | { readonly kind: 'name'; readonly record: StoredRecord }
  | { readonly kind: 'fork'; readonly record: StoredRecord; readonly rival: StoredRecord }
  | { readonly kind: 'trust'; readonly prefix: string; readonly key: string | undefined }
  | { readonly kind: 'pin'; readonly target: string; readonly isPinned: boolean }
  | { readonly kind: 'admin'; readonly action: string };

export interface OwnObject extends AnnounceEntry {
  readonly announced_ms: number;
}

/** The effect of an announcement. */
export interface Announced {
  /** Objects that were not known before. */
  readonly added: readonly Address[];
  /** Objects that were withdrawn because the range does not list them. */
  readonly withdrawn: readonly Address[];
}

/** A position in the log of this node. */
export interface LogPosition {
  /** The number of entries before it. */
  readonly size: number;
  /** The leaf hash of the last of them, which identifies the log; undefined if there is none. */
  readonly leaf: Uint8Array | undefined;
}

/** A key and value of the DHT: a provider record of a peer, or a name record. */
export interface DhtEntry {
  readonly key: string;
  readonly value: Uint8Array;
}

/** Older records that are kept of a name. */
export const HISTORY_MAX = 64;

export interface IndexStore extends AsyncDisposable {
  /** Why the database cannot be used; the readiness gate `db`. */
  readonly problem: string | undefined;
  /** Changes when the database is new or a reindex begins. */
  readonly epoch: string;
  /** The entries of the log that were applied. */
  readonly applied: LogPosition;

  /**
   * Applies changes of the log, one for each entry, and records the new position, in one transaction. Entries that were applied
   * before are skipped. Rejects with `conflict`, reason `gap`, if entries before them are missing: apply them first, from `applied`.
   */
  apply(changes: readonly LogChange[], applied: LogPosition): Promise<void>;
  /**
   * Forgets trust, pins, the position and which names are own, so that the log can be applied again. Records, rivals and the
   * highest seq stay: they are signed, and an older log must not undo them.
   */
  resetLog(): Promise<void>;
  newEpoch(): Promise<string>;

  name(key: string, label: string): Promise<StoredName | undefined>;
  /** Older records of a name, the newest first. */
  history(key: string, label: string, limit: number): Promise<StoredRecord[]>;
  /** The own names below `prefix` (whole segments), ordered by label and key, after `after`. */
  names(prefix: string, after: NamePosition | undefined, limit: number): Promise<StoredName[]>;
  countNames(key: string): Promise<number>;
  /** The highest seq that was ever seen; it outlives expiry and removal. */
  highestSeq(key: string, label: string): Promise<{ seq: number; hash: Uint8Array } | undefined>;
  /**
   * Records a name of another node. Compare-and-swap: returns false and changes nothing unless `replaces` is the hash of the
   * current record, undefined if there is none. `isTrusted`: never forgotten. Others: an LRU of `quotas.names_seen`.
   */
  saveSeen(record: StoredRecord, rival: StoredRecord | undefined, init: SaveSeenInit): Promise<boolean>;

  trust(): Promise<TrustedKey[]>;
  pins(): Promise<string[]>;

  /**
   * Idempotent and atomic; withdrawals come first. Rejects with `storage_full`, reason `quota`, if the quotas refuse it. With
   * `range`, own objects of the subject in it that are not among the entries are withdrawn too, at most `RANGE_WITHDRAWN_MAX` in
   * a call.
   */
  announce(
    subject: string,
    entries: readonly AnnounceEntry[],
    withdraw: readonly Address[],
    now_ms: number,
    range?: AnnounceRange,
  ): Promise<Announced>;
  object(address: Address): Promise<OwnObject | undefined>;
  /** Own objects in the order of their routing keys, after `cursor`: for the sweep. */
  objects(cursor: Uint8Array | undefined, limit: number): Promise<{ address: Address; routing_key: Uint8Array }[]>;
  countObjects(): Promise<number>;
  readCursor(name: string): Promise<Uint8Array | undefined>;
  saveCursor(name: string, cursor: Uint8Array | undefined): Promise<void>;

  /** The key-value interface below the DHT: `put` refuses beyond the quotas, `get` returns no expired entry. */
  dhtGet(key: string, now_ms: number): Promise<Uint8Array | undefined>;
  dhtPut(key: string, value: Uint8Array, init: { subject: string; expires_ms: number; now_ms: number }): Promise<void>;
  dhtDelete(key: string): Promise<void>;
  dhtQuery(prefix: string, init: { now_ms: number; limit: number }): Promise<DhtEntry[]>;
  /** Removes up to `limit` expired rows; returns how many. */
  purgeExpired(now_ms: number, limit: number): Promise<number>;
}

/** Objects that the range of one announcement withdraws; the next walk of storage withdraws the rest. */
export const RANGE_WITHDRAWN_MAX = 10_000;
