/**
 * How a log of records becomes an index: which tables a record is entered in, and which of two records wins.
 *
 * The record with the higher number wins; of two with one number, the later place. A moved record keeps its number, so
 * the same log gives the same index in any order that compaction has left.
 */
import { assert } from '@ron/kernel';
import { recordBytes, type Appended, type DurableRecord, type RecordHead, type RecordInput } from '@ron/log';
import { isEnd, RecordType } from '../volume/record-types.ts';
import { shardIdsOf } from '../volume/stripe.ts';
import type { Place, Table } from './entry.ts';
import type { PlaceIndex } from './place-index.ts';

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
  [RecordType.unnote]: ['note'],
  [RecordType.parity]: ['content'],
};

export const tablesOf = (type: number): readonly Table[] => TABLES_OF_TYPE[type] ?? [];

/** The bytes that a record occupies on disk. */
export const onDisk = (place: Place): number => recordBytes(place.payload_bytes, place.meta_bytes);

export const isAt = (place: Place | undefined, segment: number, offset: number): boolean =>
  place !== undefined && place.segment === segment && place.offset === offset;

/** An entry that a record has: its table and the id that it is found by. */
export type EntryKey = readonly [table: Table, id: Uint8Array];

/** The entries of a record. A stripe has one for each of its shards, named in `body`, which begins with the payload. */
export function entriesOf(
  { type, payload_bytes }: Pick<Place, 'type' | 'payload_bytes'>,
  id: Uint8Array,
  body: Uint8Array | undefined,
): readonly EntryKey[] {
  const own = tablesOf(type).map((table) => [table, id] as const);
  return namesShards(type) ? [...own, ...shardsOf(body, payload_bytes).map((shard) => ['shard', shard] as const)] : own;
}

/** Enters a record that has just become durable. */
export function enter(index: PlaceIndex, id: Uint8Array, place: Place, body: Uint8Array | undefined): void {
  for (const [table, key] of entriesOf(place, id, body)) index.enter(table, key, place);
}

/** Enters a record that was found in the log. Entries in the runs are read only where they could be newer. */
export function enterReplayed(index: PlaceIndex, id: Uint8Array, place: Place, body: Uint8Array): void | Promise<void> {
  const keys = entriesOf(place, id, body);
  if (keys.some(([table, key]) => index.needsKnown(table, key))) return enterCompared(index, keys, place);
  for (const [table, key] of keys) index.enter(table, key, place);
  return undefined;
}

async function enterCompared(index: PlaceIndex, keys: readonly EntryKey[], place: Place): Promise<void> {
  for (const [table, key] of keys) {
    using hold = await index.hold(table, key);
    index.enter(table, key, place, hold.place);
  }
}

function shardsOf(body: Uint8Array | undefined, payload_bytes: number): readonly Uint8Array[] {
  assert(body !== undefined, 'a record that names shards waits for its sync');
  return shardIdsOf(body.subarray(0, payload_bytes));
}

/** Whether records of this type need their payload to be entered. */
export const namesShards = (type: number): boolean => type === RecordType.stripe || type === RecordType.unstripe;

/** The record of a mark, which has no content, from its index entry. Undefined for any other record. */
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
