/**
 * The record about the audit log in the store, which makes a rollback of one of the two detectable.
 *
 * A checkpoint is durable in the store before it is published as `audit/checkpoint`. After a crash the public file may
 * therefore lag behind the store, but never behind the published size of the store, and the store never lags behind the
 * public file. The log may always be longer than any record of it, because entries are written first.
 */
import { Table } from '@ron/custody/store';
import type { Checkpoint, SignedCheckpoint } from '@ron/tlog';
import type { Acceptance } from './accept.ts';
import { META } from './tables.ts';

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
  /** Signed, and published unless a crash intervened. */
  readonly checkpoint?: LogHead;
  /** Entries of the last checkpoint that is known to be published. */
  readonly published: number;
  /** Unix time of this state, in ms. */
  readonly time_ms: number;
  /** Set by a clean shutdown, once everything is in the log; removed before any other operation. */
  readonly is_closed?: true;
  /** The audience root was used while the log was damaged, without an entry. Removed by the next start without damage. */
  readonly ran_unsound?: true;
  /** The number of the last archive. Absent for the first log; otherwise the last part of `origin` is random. */
  readonly number?: number;
  /** Carried out by the next start, see vault/accept.ts. */
  readonly accepted?: Acceptance;
}

export const ANCHORS = new Table<Anchor>(META);
export const ANCHOR_KEY = 'anchor';

export function headOf({ origin, size, root }: SignedCheckpoint): LogHead {
  return { origin, size, root_b64: Buffer.from(root).toString('base64') };
}

export function checkpointOf({ size, root_b64 }: LogHead): Pick<Checkpoint, 'size' | 'root'> {
  return { size, root: Buffer.from(root_b64, 'base64') };
}
