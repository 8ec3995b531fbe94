/**
 * The rules of names, as pure functions: which record may be published, and which of several known records is current.
 *
 *     publish   seq is one more than that of the last record, and `previous` its hash; after `moved_to` there is none
 *     order     a known `moved_to` is final; otherwise the higher seq wins, then the smaller hash
 *     fork      two records with one seq, a `previous` that contradicts a known record, or a record beyond a move;
 *               a gap in seq is not a fork, except behind a record that was published here: the records between
 *               are unknown, so that record stays as the rival until the next clean record, or until the one missing
 *               record links both
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

export interface MergeInit {
  /** Records that were current or a rival before. One of them, found again, does not begin a new fork. */
  readonly past: readonly StoredRecord[];
  /** Whether the name was published on this node. */
  readonly isOwn: boolean;
}

/** The state of a name after `found` was added to the known state. */
export function mergeRecord(
  known: NameState | undefined,
  found: StoredRecord,
  { past, isOwn }: MergeInit = { past: [], isOwn: false },
): NameState {
  if (known === undefined) return { record: found, rival: undefined };
  const { record, rival } = known;
  if (isSame(found.hash, record.hash) || (rival !== undefined && isSame(found.hash, rival.hash))) return known;
  if (supersedes(found, record)) {
    // It wins. A record of the same chain does not contradict it.
    if (contradicts(found, record)) return { record: found, rival: record };
    const isGap = found.seq > record.seq + 1;
    return { record: found, rival: isOwn && isGap ? (rival ?? record) : undefined };
  }
  if (rival !== undefined) return isLink(found, rival, record) ? { record, rival: undefined } : known;
  const contradicted = rivalAmong(record, found, past);
  return contradicted === undefined ? known : { record, rival: contradicted };
}

/** Whether `found` is the one record between the two others. */
function isLink(found: StoredRecord, before: StoredRecord, after: StoredRecord): boolean {
  return follows(after, found) && follows(found, before);
}

const follows = (next: StoredRecord, before: StoredRecord): boolean =>
  next.seq === before.seq + 1 && fieldsOf(next).previous === hex(before.hash);

/** The rival that `found`, which does not win, makes known: itself, or the past record that it proves to be on another branch. */
function rivalAmong(
  current: StoredRecord,
  found: StoredRecord,
  past: readonly StoredRecord[],
): StoredRecord | undefined {
  if (found.seq < current.seq && past.some(({ hash }) => isSame(hash, found.hash))) return undefined;
  if (contradicts(current, found)) return found;
  const at = (seq: number): StoredRecord[] => past.filter((each) => each.seq === seq);
  const [before, beside, after] = [at(found.seq - 1), at(found.seq), at(found.seq + 1)];
  const isForked =
    beside.length > 0 ||
    (before.length > 0 && !before.some((each) => follows(found, each))) ||
    (after.length > 0 && !after.some((each) => follows(each, found)));
  if (!isForked) return undefined;
  return follows(current, found) ? (beside[0] ?? before[0] ?? after[0]) : found;
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
