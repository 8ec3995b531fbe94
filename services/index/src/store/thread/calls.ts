/** The calls that the store sends to its threads, and the messages that carry them. */
import type { Address, AnnounceEntry, AnnounceRange } from '@ron/proto';
import type { ErrorCode } from '@ron/kernel';
import type {
  Announced,
  DhtEntry,
  LogChange,
  LogPosition,
  NamePosition,
  OwnObject,
  SaveSeenInit,
  StoredName,
  StoredRecord,
  TrustedKey,
} from '../index-store.ts';

export interface DhtPutInit {
  readonly subject: string;
  readonly expires_ms: number;
  readonly now_ms: number;
}

/** Calls that change nothing. */
export interface Reads {
  name(key: string, label: string): StoredName | undefined;
  history(key: string, label: string, limit: number): StoredRecord[];
  names(prefix: string, after: NamePosition | undefined, limit: number): StoredName[];
  countNames(key: string): number;
  highestSeq(key: string, label: string): { seq: number; hash: Uint8Array } | undefined;
  trust(): TrustedKey[];
  pins(): string[];
  object(address: Address): OwnObject | undefined;
  objects(cursor: Uint8Array | undefined, limit: number): { address: Address; routing_key: Uint8Array }[];
  countObjects(): number;
  readCursor(name: string): Uint8Array | undefined;
  dhtGet(key: string, now_ms: number): Uint8Array | undefined;
  dhtQuery(prefix: string, init: { now_ms: number; limit: number }): DhtEntry[];
}

/** Calls that change the database. Each is idempotent: a call whose thread died is sent once more. */
export interface Writes {
  apply(changes: readonly LogChange[], applied: LogPosition): void;
  resetLog(): void;
  newEpoch(): void;
  saveSeen(record: StoredRecord, rival: StoredRecord | undefined, init: SaveSeenInit): boolean;
  announce(
    subject: string,
    entries: readonly AnnounceEntry[],
    withdraw: readonly Address[],
    now_ms: number,
    range: AnnounceRange | undefined,
  ): Announced;
  saveCursor(name: string, cursor: Uint8Array | undefined): void;
  dhtPut(key: string, value: Uint8Array, init: DhtPutInit): void;
  dhtDelete(key: string): void;
  purgeExpired(now_ms: number, limit: number): number;
}

/**
 * Writes that reach stable storage before they are answered. The others are rebuilt after a power failure: changes of the
 * log from the log, entries of the DHT by their owners.
 */
export const SYNCED: ReadonlySet<string> = new Set(['announce', 'newEpoch', 'saveSeen', 'resetLog']);

export interface Quotas {
  /** Own objects, and as many provider records of peers. */
  readonly providers_max: number;
  /** Provider records of one peer; of the name records it has the same share. */
  readonly providers_per_subject: number;
  /** Names of keys that are neither own nor trusted, and as many name records of peers. */
  readonly names_seen: number;
}

/** How a thread opens the database. Sent with each batch: a thread that replaced another one opens it by itself. */
export interface DatabaseInit {
  /** Undefined: in memory, in this thread. */
  readonly path: string | undefined;
  /** The writer creates the database and holds its lock. A thread with a database in memory does both. */
  readonly role: 'writer' | 'reader';
  /** A thread that has opened an older generation opens the file again. */
  readonly generation: number;
  readonly quotas: Quotas;
}

export interface ThreadCall {
  readonly fn: string;
  readonly args: readonly unknown[];
}

export interface CallError {
  readonly code: ErrorCode;
  readonly message: string;
  readonly reason?: string;
}

export type CallResult = { readonly value: unknown } | { readonly error: CallError };

export interface DatabaseState {
  readonly epoch: string;
  readonly applied: LogPosition;
}

export interface OpenedDatabase extends DatabaseState {
  /** The name of a damaged or foreign file that was moved aside, and why. */
  readonly movedAside: { readonly path: string; readonly why: string } | undefined;
}

export interface BatchResult {
  readonly results: readonly CallResult[];
  /** After the batch; of the writer only. */
  readonly state: DatabaseState | undefined;
}
