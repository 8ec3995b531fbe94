/**
 * How a log of records becomes an index: which tables a record is entered in, and which of two records wins.
 *
 * The record with the higher number wins; of two with one number, the later place. A moved record keeps its number, so
 * the same log gives the same index in any order that compaction has left.
 */
import { assert } from '@ron/kernel';
import { recordBytes, type Appended, type DurableRecord, type RecordHead, type RecordInput } from '@ron/log';
import type { Place, PlaceIndex, Table } from './place-index.ts';
import { isEnd, RecordType } from './record-types.ts';
import { shardIdsOf } from './stripe.ts';

const TABLES_OF_TYPE: Record<number, readonly Table[]> = {
  [RecordType.chunk]: ['content'],
  [RecordType.object]: ['content', 'object'],
  [RecordType.page]: ['content'],
  [RecordType.manifest]: ['object'],
  [RecordType.remove]: ['object'],
  [RecordType.pin]: ['pin'],
  [RecordType.unpin]: ['pin'],
  [RecordType.stripe]: ['stripe'],
  [RecordType.unstripe]: ['stripe'],
  [RecordType.note]: ['note'],
  [RecordType.parity]: ['content'],
};

export const tablesOf = (type: number): readonly Table[] => TABLES_OF_TYPE[type] ?? [];

/** What a record takes on disk. */
export const onDisk = (place: Place): number => recordBytes(place.payload_bytes, place.meta_bytes);

export const isAt = (place: Place | undefined, segment: number, offset: number): boolean =>
  place !== undefined && place.segment === segment && place.offset === offset;

/**
 * Enters a durable record: appended, moved or replayed. `body` begins with its payload; a stripe is entered by its shards
 * only with it.
 */
export function enter(index: PlaceIndex, id: Uint8Array, place: Place, body: Uint8Array | undefined): void {
  for (const table of tablesOf(place.type)) enterOne(index, table, id, place);
  for (const shard of shardsOf(place.type, body, place.payload_bytes)) enterOne(index, 'shard', shard, place);
}

function enterOne(index: PlaceIndex, table: Table, id: Uint8Array, place: Place): void {
  const known = index.get(table, id);
  if (known === undefined || place.seq >= known.seq) index.set(table, id, place);
}

/** A stripe is found by each of its shards as well. */
function shardsOf(type: number, body: Uint8Array | undefined, payload_bytes: number): readonly Uint8Array[] {
  if (!namesShards(type)) return [];
  assert(body !== undefined, 'a record that names shards waits for its sync');
  return shardIdsOf(body.subarray(0, payload_bytes));
}

/** Whether records of this type need their payload to be entered. */
export const namesShards = (type: number): boolean => type === RecordType.stripe || type === RecordType.unstripe;

/** A mark has no content: what the index knows of it is all that there was. Undefined when it is none. */
export function markAt(table: Table, id: Uint8Array, { type, seq, time_s }: Place): RecordInput | undefined {
  return table === 'pin' || isEnd(type) ? { type, id, seq, time_s, payload: new Uint8Array(0) } : undefined;
}

export function placeOfAppended({ type, payload_bytes, meta_bytes }: DurableRecord, appended: Appended): Place {
  const { segment, offset, seq, time_s } = appended;
  return { segment, offset, seq, time_s, type, payload_bytes, meta_bytes };
}

export function placeOfHead(head: RecordHead, position: { segment: number; offset: number }): Place {
  const { type, payload_bytes, meta_bytes, seq, time_s } = head;
  return { segment: position.segment, offset: position.offset, seq, time_s, type, payload_bytes, meta_bytes };
}
