/**
 * Cross-references between the parts of the vault, which make a rollback of some of them detectable.
 *
 *     anchor --records--> versions of custody and index, operations in ops, the last checkpoint, the published size
 *     index, custody, ops/head --record--> the last checkpoint that the anchor had when they were written
 *
 * A checkpoint is durable in the anchor before it is written to ops/head and to the public file `checkpoint`, and in both of
 * them before the anchor records it as published. After a crash they may therefore lag behind the anchor, but never behind
 * its published size. The log may always be longer than any record of it, because entries are written first.
 */
import { SealedFile, type Unlock } from '@ron/custody';
import type { FileSystem } from '@ron/log';
import type { Checkpoint, SignedCheckpoint } from '@ron/tlog';
import type { OpExtent } from '../ops/op-ledger.ts';

/** The identity, size and root of a log. */
export interface LogHead {
  readonly origin: string;
  readonly size: number;
  readonly root_b64: string;
}

export interface Anchor {
  readonly origin: string;
  /** Handles of the log's own keys in the file backend. */
  readonly log_keys: { readonly ed25519: string; readonly ml_dsa_44: string };
  /** Authenticates the operations in ops. */
  readonly ops_key_b64: string;
  /** Signed, and published unless a crash intervened. */
  readonly checkpoint?: LogHead;
  /** Entries of the last checkpoint that is known to be in ops/head and published. */
  readonly published: number;
  readonly index_version: number;
  readonly custody_version: number;
  readonly ops?: OpExtent;
  /** Unix time of this state, in ms. */
  readonly time_ms: number;
  /** Set by a clean shutdown, once everything is in the log; removed before any other operation. */
  readonly is_closed?: true;
}

/** A document that is replaced as a whole. */
export interface Store<T> {
  readonly value: T;
  readonly version: number;
  replace(next: T, signal: AbortSignal): Promise<unknown>;
  close(): Promise<void>;
}

export function headOf({ origin, size, root }: SignedCheckpoint): LogHead {
  return { origin, size, root_b64: Buffer.from(root).toString('base64') };
}

export function checkpointOf({ size, root_b64 }: LogHead): Pick<Checkpoint, 'size' | 'root'> {
  return { size, root: Buffer.from(root_b64, 'base64') };
}

export interface OpenStoreInit<T> {
  readonly path: string;
  /** Undefined: the document is kept in memory. */
  readonly unlock: Unlock | undefined;
  readonly purpose: string;
  readonly initial: T;
  /** An older or missing file is refused. Default 0. */
  readonly version_min?: number;
  readonly fs: FileSystem;
  readonly signal: AbortSignal;
}

/** Opens or creates a sealed document. */
export async function openStore<T>({ unlock, initial, ...rest }: OpenStoreInit<T>): Promise<Store<T>> {
  if (unlock === undefined) return memoryStore(initial);
  return await SealedFile.open<T>({
    unlock,
    initial,
    // JSON has no undefined.
    codec: {
      encode: (value) => Buffer.from(JSON.stringify(value ?? null)),
      decode: (bytes) => (JSON.parse(Buffer.from(bytes).toString()) as T | null) ?? (undefined as T),
    },
    ...rest,
  });
}

/** A store that is lost when the process exits. */
function memoryStore<T>(initial: T): Store<T> {
  const store = {
    value: initial,
    version: 0,
    async replace(next: T): Promise<void> {
      store.value = next;
      store.version += 1;
    },
    close: () => Promise.resolve(),
  };
  return store;
}
