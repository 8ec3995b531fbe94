/** The options of LMDB, and the messages between the store and the thread that writes. */
/** Address space, not memory: LMDB maps the file, which grows as needed. */
const MAP_BYTES = 2 ** 38;
const TABLES_MAX = 16;

/** Changes of records in one message: a structured copy of many small arrays would cost more than the transaction. */
export interface PackedChanges {
  /** Table and key of each. */
  readonly places: readonly string[];
  /** The end offset of each value in `bytes`, and -1 for a record that is removed. */
  readonly ends: Float64Array;
  readonly bytes: Uint8Array;
}

/** Undefined: written. Otherwise the number of the system error, or LMDB's. */
export type WriteResult = { readonly errno: number; readonly message: string } | undefined;

export const LMDB_OPTIONS = {
  noSubdir: false,
  mapSize: MAP_BYTES,
  maxDbs: TABLES_MAX,
  // A commit returns after its data is on stable storage.
  overlappingSync: false,
  encoding: 'binary',
  cache: false,
  permissionsMode: 0o600,
} as const;
