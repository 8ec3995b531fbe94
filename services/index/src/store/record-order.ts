/**
 * The order of the records of one name: the higher seq wins, then the smaller hash. A record with `moved_to` is final: no other
 * record of the key supersedes it, not even with a higher seq, so a stolen key cannot take back a name that was moved away.
 */
import { decodeNameRecord } from '@ron/proto/names';
import type { StoredRecord } from './index-store.ts';

type Ordered = Pick<StoredRecord, 'seq' | 'hash' | 'record'>;

/** Whether `left` takes the place of `right` as the current record. False if they are equal, and between two moves. */
export function supersedes(left: Ordered, right: Ordered): boolean {
  if (isMove(right)) return false;
  if (isMove(left)) return true;
  if (left.seq !== right.seq) return left.seq > right.seq;
  return Buffer.compare(left.hash, right.hash) < 0;
}

/** Whether the record hands its label over to another key. */
export function isMove({ record }: Pick<StoredRecord, 'record'>): boolean {
  const decoded = decodeNameRecord(record);
  return decoded.ok && decoded.record.moved_to !== undefined;
}

export const isSameRecord = (left: Pick<StoredRecord, 'hash'>, right: Pick<StoredRecord, 'hash'>): boolean =>
  Buffer.compare(left.hash, right.hash) === 0;
