/**
 * The rules of names, as pure functions: which record may be published, and which of several known records is current.
 *
 *     publish   seq is one more than that of the last record, and `previous` its hash; after `moved_to` there is none
 *     order     a known `moved_to` is final; otherwise the higher seq wins, then the smaller hash
 *     fork      two records with one seq, a `previous` that contradicts a known record, or a record beyond a move;
 *               a gap in seq is not a fork
 */
import { notAfterProblem } from '@ron/proto/names';
import type { StoredRecord } from '../store/index-store.ts';
import { isMove, supersedes } from '../store/record-order.ts';
import { fieldsOf, type SignedRecord } from './signed-record.ts';

export interface Seen {
  readonly seq: number;
  readonly hash: Uint8Array;
}

export type Judgement =
  | { readonly verdict: 'new' | 'same' }
  /** It does not follow the last record. */
  | { readonly verdict: 'conflict'; readonly problem: string }
  /** It is not valid at any place. */
  | { readonly verdict: 'invalid'; readonly problem: string };

/** `current` is the current record, if it is known; `highest` the highest seq that was ever seen. */
export function judge(
  { stored, fields }: SignedRecord,
  current: StoredRecord | undefined,
  highest: Seen | undefined,
  now_s: number,
): Judgement {
  if (current !== undefined && isSame(stored.hash, current.hash)) return { verdict: 'same' };
  const problem = notAfterProblem(fields.not_after, now_s);
  if (problem !== undefined) return { verdict: 'invalid', problem };
  const last = lastOf(current, highest);
  if (last === undefined) {
    return fields.seq === 1 ? { verdict: 'new' } : conflict('this node knows no record of the name: sign seq 1');
  }
  if (current !== undefined && isMove(current)) {
    return conflict('the label was moved to another key, which is final');
  }
  if (fields.seq !== last.seq + 1) return conflict(`the next seq is ${last.seq + 1}, not ${fields.seq}`);
  if (fields.previous !== hex(last.hash)) return conflict('previous is not the hash of the current record');
  return { verdict: 'new' };
}

function lastOf(current: Seen | undefined, highest: Seen | undefined): Seen | undefined {
  if (current === undefined || highest === undefined) return current ?? highest;
  return highest.seq > current.seq ? highest : current;
}

const conflict = (problem: string): Judgement => ({ verdict: 'conflict', problem });

export interface NameState {
  readonly record: StoredRecord;
  /** The record that contradicts it, if any. */
  readonly rival: StoredRecord | undefined;
}

/**
 * The state of a name after `found` was added to the known state. `isResolved` tells whether an older record belongs to a
 * fork that a later record has ended; it does not begin a new one.
 */
export function mergeRecord(
  known: NameState | undefined,
  found: StoredRecord,
  isResolved: (record: StoredRecord) => boolean,
): NameState {
  if (known === undefined) return { record: found, rival: undefined };
  const { record, rival } = known;
  if (isSame(found.hash, record.hash) || (rival !== undefined && isSame(found.hash, rival.hash))) return known;
  if (supersedes(found, record)) {
    // It wins. A record of the same chain does not contradict it.
    return { record: found, rival: contradicts(found, record) ? record : undefined };
  }
  if (rival !== undefined || !contradicts(record, found)) return known;
  if (found.seq < record.seq && isResolved(found)) return known;
  return { record, rival: found };
}

/** Whether two distinct records cannot both belong to one chain. */
export function contradicts(left: StoredRecord, right: StoredRecord): boolean {
  if (left.seq === right.seq) return true;
  const [later, earlier] = left.seq > right.seq ? [left, right] : [right, left];
  // Nothing follows a move.
  if (isMove(earlier)) return true;
  return later.seq === earlier.seq + 1 && fieldsOf(later).previous !== hex(earlier.hash);
}

export const isSame = (left: Uint8Array, right: Uint8Array): boolean => Buffer.compare(left, right) === 0;
export const hex = (bytes: Uint8Array): string => Buffer.from(bytes).toString('hex');
