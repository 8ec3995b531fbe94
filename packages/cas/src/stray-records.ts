/**
 * Records that the index does not lead to, met by compaction: garbage nearly always. But the index has no checksums, and
 * one wrong bit of it must not make garbage of what is needed.
 *
 * Promise: a record goes only when the index has a newer word, or leads to a record that is there and whole. Otherwise the
 * index is led to it. Of what is the same bytes by its id, an older record serves when the newer one is damaged.
 * Bound: one record is read at a time, paced. Cancellation: as `pace` does.
 */
import type { RecordHead, SegmentLog } from '@ron/log';
import type { Place, PlaceIndex, Table } from './place-index.ts';
import { isAt, onDisk, tablesOf } from './record-places.ts';
import { isEnd } from './record-types.ts';
import { isInLog, readAt } from './recovery.ts';

export interface StrayInit {
  log: SegmentLog;
  index: PlaceIndex;
  isNeeded: (id: Uint8Array) => boolean;
  pace: (bytes: number) => Promise<void>;
}

/** Whether a record at `here` may be what a table should lead to. */
export function isAstray({ log, index, isNeeded }: StrayInit, table: Table, head: RecordHead, here: Place): boolean {
  const known = index.get(table, head.id);
  if (isAt(known, here.segment, here.offset)) return false;
  // What was cut off may still be on disk.
  if (!isInLog(log, here) || (table === 'content' && !isNeeded(head.id))) return false;
  if (known === undefined || !(known.seq > head.seq)) return true;
  return (table === 'content' || table === 'object') && !isEnd(known.type) && !isEnd(head.type);
}

/** Leads the index to a record at `here` when it leads to nothing as good. Whether it did. */
export async function claim(init: StrayInit, table: Table, head: RecordHead, here: Place): Promise<boolean> {
  const { index } = init;
  while (isAstray(init, table, head, here)) {
    const known = index.get(table, head.id);
    const isBetter = known !== undefined && !(known.seq < head.seq) && (await isThere(init, table, head.id, known));
    // Looking took a while: what was looked at must still be what the index says.
    const now = index.get(table, head.id);
    if (known === undefined ? now !== undefined : !isAt(now, known.segment, known.offset)) continue;
    if (isBetter) return false;
    index.set(table, head.id, here);
    return true;
  }
  return false;
}

async function isThere({ log, pace }: StrayInit, table: Table, id: Uint8Array, place: Place): Promise<boolean> {
  if (!isInLog(log, place)) return false;
  await pace(onDisk(place));
  const record = await readAt(log, place);
  if (record === undefined) return false;
  return Buffer.compare(record.head.id, id) === 0 && tablesOf(record.head.type).includes(table);
}
