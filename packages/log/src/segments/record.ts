/**
 * The format of a record in a segment.
 *
 *     0     4    5       6          8             12    20        52       56     60         64
 *     | magic | type | version | meta bytes | payload bytes | seq | id (32) | body crc | time | header crc | payload | meta | zeros
 *
 * An id has 0 to 32 bytes, followed by zeros. The version byte is 1 plus four times the number of bytes that it lacks.
 *
 * Little-endian. Records begin at multiples of 64 bytes, so that a reader can find the next one after damage. The two
 * checksums find torn writes and rot; whether the payload matches the id is verified by the caller that chose the id.
 *
 * The header checksum is seeded with the segment's salt. Clients choose payloads, and after a torn write a reader searches
 * for the next header inside of one: bytes that imitate a record must not be accepted as one.
 */
import { crc32 } from 'node:zlib';

export const HEADER_BYTES = 64;
/** The longest id. */
export const ID_BYTES = 32;
export const META_BYTES_MAX = 65_535;
const MAGIC = 0x314e4f52; // 'RON1'
const VERSION = 1;
/** The version byte counts in steps of this for each byte that an id lacks. */
const VERSIONS = 4;
const HEADER_CRC_AT = 60;

export interface RecordInput {
  /** 1 to 255; the meaning is the caller's. */
  readonly type: number;
  /** 0 to 32 bytes. */
  readonly id: Uint8Array;
  readonly payload: Uint8Array;
  /** Metadata of the payload, such as a media type. */
  readonly meta?: Uint8Array;
  /** Only when a record moves: its own number instead of the next one. */
  readonly seq?: number;
  /** Only when a record moves: its own time instead of now. */
  readonly time_s?: number;
  /** Any value of the caller; `onDurable` gets it back. Not written. */
  readonly context?: unknown;
}

export interface RecordHead {
  readonly type: number;
  readonly seq: number;
  /** When it was first appended, in seconds of Unix time. */
  readonly time_s: number;
  readonly id: Uint8Array<ArrayBuffer>;
  readonly payload_bytes: number;
  readonly meta_bytes: number;
  readonly body_crc: number;
}

export interface Position {
  readonly segment: number;
  /** Of the record's header. */
  readonly offset: number;
}

export interface Appended extends Position {
  readonly seq: number;
  readonly time_s: number;
}

/** A record that a sync has made durable. */
export interface DurableRecord {
  readonly type: number;
  readonly id: Uint8Array;
  readonly payload_bytes: number;
  readonly meta_bytes: number;
  /** Undefined if the append did not wait for the sync: its payload belongs to the caller again. */
  readonly payload: Uint8Array | undefined;
  /** As in `RecordInput`, even if the append did not wait for the sync. */
  readonly context: unknown;
}

/** The end of the durable part of a log. */
export interface DurableEnd {
  readonly position: Position;
  /** The largest number of a durable record. */
  readonly seq: number;
}

export interface LogRecord {
  readonly head: RecordHead;
  readonly payload: Uint8Array;
  readonly meta: Uint8Array;
}

const padded = (bytes: number): number => Math.ceil(bytes / HEADER_BYTES) * HEADER_BYTES;

/** The length of a record on disk. */
export function recordBytes(payload_bytes: number, meta_bytes: number): number {
  return padded(HEADER_BYTES + payload_bytes + meta_bytes);
}

export function bodyCrc(payload: Uint8Array, meta: Uint8Array | undefined): number {
  const crc = crc32(payload);
  return meta === undefined ? crc : crc32(meta, crc);
}

const EMPTY = new Uint8Array(0);

/** The header fields that the segment and the log determine. */
export interface HeaderInit {
  readonly seq: number;
  readonly time_s: number;
  readonly salt: number;
}

/** Writes the header of `record` at `at`. */
export function encodeHeader(record: RecordInput, init: HeaderInit, into: Buffer, at: number): void {
  const { seq } = init;
  into.writeUInt32LE(MAGIC, at);
  into.writeUInt8(record.type, at + 4);
  into.writeUInt8(VERSION + (ID_BYTES - record.id.length) * VERSIONS, at + 5);
  into.writeUInt16LE((record.meta ?? EMPTY).length, at + 6);
  into.writeUInt32LE(record.payload.length, at + 8);
  into.writeUInt32LE(seq % 2 ** 32, at + 12);
  into.writeUInt32LE(Math.floor(seq / 2 ** 32), at + 16);
  into.set(record.id, at + 20);
  into.fill(0, at + 20 + record.id.length, at + 20 + ID_BYTES);
  into.writeUInt32LE(bodyCrc(record.payload, record.meta), at + 52);
  into.writeUInt32LE(init.time_s, at + 56);
  into.writeUInt32LE(crc32(into.subarray(at, at + HEADER_CRC_AT), init.salt), at + HEADER_CRC_AT);
}

/** The header at `at`, or undefined when there is none or it is damaged. */
export function decodeHeader(bytes: Buffer, at: number, salt: number): RecordHead | undefined {
  if (at + HEADER_BYTES > bytes.length || bytes.readUInt32LE(at) !== MAGIC) return undefined;
  const version = bytes.readUInt8(at + 5);
  const id_bytes = ID_BYTES - Math.floor(version / VERSIONS);
  if (version % VERSIONS !== VERSION || id_bytes < 0) return undefined;
  if (crc32(bytes.subarray(at, at + HEADER_CRC_AT), salt) !== bytes.readUInt32LE(at + HEADER_CRC_AT)) return undefined;
  return {
    type: bytes.readUInt8(at + 4),
    seq: bytes.readUInt32LE(at + 12) + bytes.readUInt32LE(at + 16) * 2 ** 32,
    time_s: bytes.readUInt32LE(at + 56),
    id: copyOf(bytes, at + 20, id_bytes),
    payload_bytes: bytes.readUInt32LE(at + 8),
    meta_bytes: bytes.readUInt16LE(at + 6),
    body_crc: bytes.readUInt32LE(at + 52),
  };
}

/** Faster than the methods of typed arrays for a few bytes: a start decodes millions of headers. */
function copyOf(bytes: Buffer, at: number, length: number): Uint8Array<ArrayBuffer> {
  const copy = new Uint8Array(length);
  for (let index = 0; index < length; index++) copy[index] = bytes[at + index]!;
  return copy;
}

/** Whether a body (payload, then meta) is the one that was appended under this header. */
export const isBodyIntact = (head: RecordHead, body: Uint8Array): boolean => crc32(body) === head.body_crc;

export interface ReadInit {
  /** `caller`: the caller verifies the payload by its own hash, and does not use the meta. Default: the log's checksum. */
  verify?: 'log' | 'caller';
}

/** The record that `bytes` hold from their beginning to their end; undefined if it is damaged. */
export function recordIn(
  bytes: Buffer,
  salt: number,
  payload_bytes: number,
  meta_bytes: number,
  { verify = 'log' }: ReadInit = {},
): LogRecord | undefined {
  const head = decodeHeader(bytes, 0, salt);
  if (head === undefined || head.payload_bytes !== payload_bytes || head.meta_bytes !== meta_bytes) return undefined;
  if (verify === 'log' && !isBodyIntact(head, bytes.subarray(HEADER_BYTES))) return undefined;
  const meta_at = HEADER_BYTES + payload_bytes;
  return { head, payload: bytes.subarray(HEADER_BYTES, meta_at), meta: bytes.subarray(meta_at) };
}
