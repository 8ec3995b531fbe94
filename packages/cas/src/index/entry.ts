/**
 * One entry of the index, in memory and on disk.
 *
 *     0        32        36       40              44           46     47      48    56     60          64        68    72
 *     | id (32) | segment | offset | payload bytes | meta bytes | type | flags | seq | time | dead from | dead to | crc |
 *
 * Little-endian. The checksum is seeded with the table, so that an entry of one table is never taken for one of another.
 *
 * `dead_from` to `dead_to` is the range of segments that may hold superseded records of the id; 0 means none. As long as
 * one of them exists, replaying the log would bring an old record back if the newest one was dropped.
 */
import { crc32 } from 'node:zlib';
import { ID_BYTES, type Position } from '@ron/log';

export type Table = 'content' | 'object' | 'pin' | 'stripe' | 'shard' | 'note';
export const TABLES: readonly Table[] = ['content', 'object', 'pin', 'stripe', 'shard', 'note'];
/** The numbers are on disk: they never change. 0 is not used. */
export const TABLE_NUMBER: Record<Table, number> = { content: 1, object: 2, pin: 3, stripe: 4, shard: 5, note: 6 };
export const TABLE_COUNT = 7;

export interface Place extends Position {
  readonly type: number;
  readonly payload_bytes: number;
  readonly meta_bytes: number;
  readonly seq: number;
  readonly time_s: number;
  /** The record at this place is damaged. Only objects are kept as damaged; anything else is removed. */
  readonly isDamaged?: boolean;
  /** See above. Undefined and 0: none. */
  readonly dead_from?: number;
  readonly dead_to?: number;
}

/** How far the log is reflected in the index. */
export interface Applied {
  readonly position: Position;
  readonly seq: number;
}

export const ENTRY_BYTES = 72;
export const FLAG_DAMAGED = 1;
/** The id has no entry; entries in older runs are void. */
export const FLAG_NONE = 2;

const AT = {
  segment: 32,
  offset: 36,
  payload_bytes: 40,
  meta_bytes: 44,
  type: 46,
  flags: 47,
  seq: 48,
  time_s: 56,
  dead_from: 60,
  dead_to: 64,
  crc: 68,
} as const;

/** A key is the table's number and the id, as latin1 text: the order of texts is the order of bytes. */
export const keyOf = (table: Table, id: Uint8Array): string =>
  TABLE_CHARACTER[table] + Buffer.from(id.buffer, id.byteOffset, id.length).toString('latin1');

const TABLE_CHARACTER = Object.fromEntries(
  TABLES.map((table) => [table, String.fromCharCode(TABLE_NUMBER[table])]),
) as Record<Table, string>;

/** Type in the low byte, flags in the high one. */
export const tagOf = (place: Place | undefined): number =>
  place === undefined ? FLAG_NONE << 8 : place.type | (place.isDamaged === true ? FLAG_DAMAGED << 8 : 0);

export function encodeEntry(key: string, place: Place | undefined, into: Buffer, at: number): void {
  into.write(key.slice(1), at, 'latin1');
  if (place === undefined) {
    into.fill(0, at + ID_BYTES, at + AT.crc);
    into[at + AT.flags] = FLAG_NONE;
  } else {
    into.writeUInt32LE(place.segment, at + AT.segment);
    into.writeUInt32LE(place.offset, at + AT.offset);
    into.writeUInt32LE(place.payload_bytes, at + AT.payload_bytes);
    into.writeUInt16LE(place.meta_bytes, at + AT.meta_bytes);
    into[at + AT.type] = place.type;
    into[at + AT.flags] = place.isDamaged === true ? FLAG_DAMAGED : 0;
    into.writeDoubleLE(place.seq, at + AT.seq);
    into.writeUInt32LE(place.time_s, at + AT.time_s);
    into.writeUInt32LE(place.dead_from ?? 0, at + AT.dead_from);
    into.writeUInt32LE(place.dead_to ?? 0, at + AT.dead_to);
  }
  into.writeUInt32LE(crcAt(into, at, key.charCodeAt(0)), at + AT.crc);
}

const crcAt = (bytes: Buffer, at: number, table: number): number => crc32(bytes.subarray(at, at + AT.crc), table);

export const isEntryIntact = (bytes: Buffer, at: number, table: number): boolean =>
  crcAt(bytes, at, table) === bytes.readUInt32LE(at + AT.crc);

export const tagAt = (bytes: Buffer, at: number): number => bytes[at + AT.type]! | (bytes[at + AT.flags]! << 8);

/** Undefined for "no entry". */
export function placeAt(bytes: Buffer, at: number): Place | undefined {
  const flags = bytes[at + AT.flags]!;
  if ((flags & FLAG_NONE) !== 0) return undefined;
  const place = {
    segment: bytes.readUInt32LE(at + AT.segment),
    offset: bytes.readUInt32LE(at + AT.offset),
    payload_bytes: bytes.readUInt32LE(at + AT.payload_bytes),
    meta_bytes: bytes.readUInt16LE(at + AT.meta_bytes),
    type: bytes[at + AT.type]!,
    seq: bytes.readDoubleLE(at + AT.seq),
    time_s: bytes.readUInt32LE(at + AT.time_s),
    dead_from: bytes.readUInt32LE(at + AT.dead_from),
    dead_to: bytes.readUInt32LE(at + AT.dead_to),
  };
  return (flags & FLAG_DAMAGED) === 0 ? place : { ...place, isDamaged: true };
}

/** `place` when it takes the place of `older`: the segment of the older record may hold a superseded record from now on. */
export function superseding(place: Place, older: Place | undefined): Place {
  if (older === undefined) return place;
  const isSame = older.segment === place.segment && older.offset === place.offset;
  const inherited = withDead(place, older.dead_from ?? 0, older.dead_to ?? 0);
  return isSame ? inherited : withDead(inherited, older.segment, older.segment);
}

/** `place` with a wider range of segments that may hold superseded records. */
export function withDead(place: Place, from: number, to: number): Place {
  if (from === 0) return place;
  const { dead_from = 0, dead_to = 0 } = place;
  if (dead_from === 0) return { ...place, dead_from: from, dead_to: to };
  if (dead_from <= from && to <= dead_to) return place;
  return { ...place, dead_from: Math.min(dead_from, from), dead_to: Math.max(dead_to, to) };
}
