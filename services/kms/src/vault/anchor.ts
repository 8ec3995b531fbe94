/**
 * What kms remembers of everything that it keeps, so that what was put back to an earlier state shows.
 *
 *     anchor --remembers--> versions of custody and index, operations in ops, the last checkpoint, what was published
 *     index, custody, ops/head --remember--> the last checkpoint that the anchor had when they were written
 *
 * A checkpoint is durable in the anchor before it is written to ops/head and to the file `checkpoint`, where everybody sees
 * it; and in both of them before the anchor calls it published. So after a crash they may lag behind the anchor, and never
 * behind what it calls published. A log may always be longer than what is remembered of it: entries come first.
 */
import { SealedFile, type Unlock } from '@ron/custody';
import type { FileSystem } from '@ron/log';
import type { Checkpoint, SignedCheckpoint } from '@ron/tlog';
import type { OpExtent } from '../ops/op-ledger.ts';

/** Which log it was, how long, and what was in it. */
export interface LogHead {
  readonly origin: string;
  readonly size: number;
  readonly root_b64: string;
}

export interface Anchor {
  readonly origin: string;
  /** The log's own keys, in the backend that holds them. */
  readonly log_keys: { readonly ed25519: string; readonly ml_dsa_44: string };
  /** Authenticates the operations in ops. */
  readonly ops_key_b64: string;
  /** Signed, and published unless a crash came between. */
  readonly checkpoint?: LogHead;
  /** Entries of the last checkpoint that is known to be in ops/head and published. */
  readonly published: number;
  readonly index_version: number;
  readonly custody_version: number;
  readonly ops?: OpExtent;
  /** Unix time of this state. */
  readonly time_ms: number;
  /** Set by a stop in good order, when everything that was done is in the log; taken back before anything else is done. */
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
  /** Undefined: it is kept in memory. */
  readonly unlock: Unlock | undefined;
  readonly purpose: string;
  readonly initial: T;
  /** An older one, or none, is refused. Default 0. */
  readonly version_min?: number;
  readonly fs: FileSystem;
  readonly signal: AbortSignal;
}

/** Opens a sealed document, or makes it. */
export async function openStore<T>({ unlock, initial, ...rest }: OpenStoreInit<T>): Promise<Store<T>> {
  if (unlock === undefined) return memoryStore(initial);
  return await SealedFile.open<T>({
    unlock,
    initial,
    // JSON knows no undefined.
    codec: {
      encode: (value) => Buffer.from(JSON.stringify(value ?? null)),
      decode: (bytes) => (JSON.parse(Buffer.from(bytes).toString()) as T | null) ?? (undefined as T),
    },
    ...rest,
  });
}

/** Lives as long as the process. */
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
