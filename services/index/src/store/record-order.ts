/** The order of the records of one name. */
import type { StoredRecord } from './index-store.ts';

/** Whether `left` is the current record beside `right`: the higher seq wins, then the smaller hash. False if they are equal. */
export function supersedes(
  left: Pick<StoredRecord, 'seq' | 'hash'>,
  right: Pick<StoredRecord, 'seq' | 'hash'>,
): boolean {
  if (left.seq !== right.seq) return left.seq > right.seq;
  return Buffer.compare(left.hash, right.hash) < 0;
}

export const isSameRecord = (left: Pick<StoredRecord, 'hash'>, right: Pick<StoredRecord, 'hash'>): boolean =>
  Buffer.compare(left.hash, right.hash) === 0;
