/**
 * The messages of Kademlia (`/ron/kad/1.0.0`) as protocol buffers. kad-dht does not export its own codec, which
 * has no bounds.
 *
 * Bound: of an answer, at most `CLOSER_MAX` closer peers and `PROVIDERS_MAX` providers with `ADDRS_MAX` addresses each are
 * kept; the others, and unknown fields, are skipped. Decoded byte strings are views of the input.
 * `decodeMessage` throws `bad_gateway` for bytes that are not a message; it never reads outside of them.
 *
 *   const frame = encodeMessage({ type: KAD.GET_PROVIDERS, key });
 *   const answer = decodeMessage(bytes);
 */
import { CLOSER_MAX } from '../../peers.ts';
import { RonError } from '@ron/kernel';

export const KAD = { PUT_VALUE: 0, GET_VALUE: 1, ADD_PROVIDER: 2, GET_PROVIDERS: 3, FIND_NODE: 4, PING: 5 } as const;
export type KadType = (typeof KAD)[keyof typeof KAD];

export const PROVIDERS_MAX = 32;
export const ADDRS_MAX = 16;
/** A multihash of a peer id: 38 bytes for Ed25519, 34 if it is hashed. */
const ID_BYTES_MAX = 128;
const ADDR_BYTES_MAX = 256;
const KEY_BYTES_MAX = 256;
/** A signed name record with its key and time; see `packages/proto`. */
const RECORD_BYTES_MAX = 4096;

export interface KadPeer {
  /** The multihash. */
  readonly id: Uint8Array;
  readonly addrs: readonly Uint8Array[];
  /** Its encoding, if it was prepared. */
  readonly encoded?: Uint8Array;
}

export interface KadMessage {
  readonly type: KadType;
  readonly key: Uint8Array | undefined;
  /** An encoded `KadRecord`. */
  readonly record: Uint8Array | undefined;
  readonly closer: readonly KadPeer[];
  readonly providers: readonly KadPeer[];
}

export interface KadRecord {
  readonly key: Uint8Array;
  readonly value: Uint8Array;
  /** RFC 3339. */
  readonly received: string;
}

const malformed = (why: string): RonError => new RonError('bad_gateway', `malformed DHT message: ${why}`);

const WIRE_VARINT = 0;
const WIRE_FIXED64 = 1;
const WIRE_BYTES = 2;
const WIRE_FIXED32 = 5;
const VARINT_BYTES_MAX = 10;

/** Reads the fields of one protocol buffer within `[at, end)`. */
class FieldReader {
  readonly #bytes: Uint8Array;
  readonly #end: number;
  #at: number;
  field = 0;
  wire = 0;

  constructor(bytes: Uint8Array, at = 0, end = bytes.length) {
    this.#bytes = bytes;
    this.#at = at;
    this.#end = end;
  }

  /** Reads the next tag; false at the end. */
  next(): boolean {
    if (this.#at === this.#end) return false;
    const tag = this.varint();
    this.field = Math.floor(tag / 8);
    this.wire = tag % 8;
    if (this.field === 0) throw malformed('field 0');
    return true;
  }

  /** Beyond 2^53 the value loses its low bits; no field that is used has such values. */
  varint(): number {
    let value = 0;
    let scale = 1;
    for (let i = 0; i < VARINT_BYTES_MAX; i++) {
      if (this.#at >= this.#end) throw malformed('truncated number');
      const byte = this.#bytes[this.#at++]!;
      value += (byte & 0x7f) * scale;
      if (byte < 0x80) return value;
      scale *= 128;
    }
    throw malformed('number of more than 10 bytes');
  }

  /** The range of a length-delimited field. */
  range(): [at: number, end: number] {
    if (this.wire !== WIRE_BYTES) throw malformed(`wire type ${this.wire} for field ${this.field}`);
    const length = this.varint();
    if (length > this.#end - this.#at) throw malformed('length beyond the end');
    const at = this.#at;
    this.#at += length;
    return [at, this.#at];
  }

  bytes(length_max: number): Uint8Array {
    const [at, end] = this.range();
    if (end - at > length_max) throw malformed(`field ${this.field} has more than ${length_max} bytes`);
    return this.#bytes.subarray(at, end);
  }

  skip(): void {
    if (this.wire === WIRE_VARINT) this.varint();
    else if (this.wire === WIRE_BYTES) this.range();
    else if (this.wire === WIRE_FIXED64) this.#advance(8);
    else if (this.wire === WIRE_FIXED32) this.#advance(4);
    else throw malformed(`wire type ${this.wire}`);
  }

  #advance(count: number): void {
    if (count > this.#end - this.#at) throw malformed('truncated field');
    this.#at += count;
  }
}

function decodePeer(bytes: Uint8Array, [at, end]: [number, number]): KadPeer {
  const reader = new FieldReader(bytes, at, end);
  let id: Uint8Array | undefined;
  const addrs: Uint8Array[] = [];
  while (reader.next()) {
    if (reader.field === 1) id = reader.bytes(ID_BYTES_MAX);
    else if (reader.field === 2 && addrs.length < ADDRS_MAX) addrs.push(reader.bytes(ADDR_BYTES_MAX));
    else reader.skip();
  }
  if (id === undefined || id.length === 0) throw malformed('a peer without id');
  return { id, addrs };
}

function kadType(value: number): KadType {
  if (value > KAD.PING) throw malformed(`type ${value}`);
  return value as KadType;
}

export function decodeMessage(bytes: Uint8Array): KadMessage {
  const reader = new FieldReader(bytes);
  let type: KadType = KAD.PUT_VALUE;
  let key: Uint8Array | undefined;
  let record: Uint8Array | undefined;
  const closer: KadPeer[] = [];
  const providers: KadPeer[] = [];
  while (reader.next()) {
    if (reader.field === 1 && reader.wire === WIRE_VARINT) type = kadType(reader.varint());
    else if (reader.field === 2) key = reader.bytes(KEY_BYTES_MAX);
    else if (reader.field === 3) record = reader.bytes(RECORD_BYTES_MAX);
    else if (reader.field === 8 && closer.length < CLOSER_MAX) closer.push(decodePeer(bytes, reader.range()));
    else if (reader.field === 9 && providers.length < PROVIDERS_MAX) providers.push(decodePeer(bytes, reader.range()));
    else reader.skip();
  }
  return { type, key, record, closer, providers };
}

export function decodeRecord(bytes: Uint8Array): KadRecord {
  const reader = new FieldReader(bytes);
  let key: Uint8Array | undefined;
  let value: Uint8Array | undefined;
  let received = '';
  while (reader.next()) {
    if (reader.field === 1) key = reader.bytes(KEY_BYTES_MAX);
    else if (reader.field === 2) value = reader.bytes(RECORD_BYTES_MAX);
    else if (reader.field === 5) received = Buffer.from(reader.bytes(64)).toString('latin1');
    else reader.skip();
  }
  if (key === undefined || value === undefined) throw malformed('a record without key or value');
  return { key, value, received };
}

/** Grows by doubling; the caller limits its size. */
class FieldWriter {
  #bytes = Buffer.allocUnsafe(256);
  #length: number;

  /** `reserved` bytes stay free at the front. */
  constructor(reserved = 0) {
    this.#length = reserved;
  }

  #reserve(count: number): void {
    if (this.#length + count <= this.#bytes.length) return;
    const grown = Buffer.allocUnsafe(Math.max(this.#bytes.length * 2, this.#length + count));
    this.#bytes.copy(grown, 0, 0, this.#length);
    this.#bytes = grown;
  }

  varint(value: number): void {
    this.#reserve(VARINT_BYTES_MAX);
    let rest = value;
    while (rest >= 0x80) {
      this.#bytes[this.#length++] = (rest % 128) | 0x80;
      rest = Math.floor(rest / 128);
    }
    this.#bytes[this.#length++] = rest;
  }

  bytes(field: number, value: Uint8Array): void {
    this.varint(field * 8 + WIRE_BYTES);
    this.varint(value.length);
    this.#reserve(value.length);
    this.#bytes.set(value, this.#length);
    this.#length += value.length;
  }

  /** The bytes so far, with the length of everything behind the reserved bytes written directly before it. */
  framed(reserved: number): Uint8Array {
    const body = this.#length - reserved;
    const prefix = new FieldWriter();
    prefix.varint(body);
    const start = reserved - prefix.#length;
    prefix.#bytes.copy(this.#bytes, start, 0, prefix.#length);
    return this.#bytes.subarray(start, this.#length);
  }

  finish(): Uint8Array {
    return this.#bytes.subarray(0, this.#length);
  }
}

/** A peer that is part of many messages. */
export function encodedPeer(peer: KadPeer): KadPeer {
  return { ...peer, encoded: Uint8Array.from(encodePeer(peer)) };
}

function encodePeer(peer: KadPeer): Uint8Array {
  if (peer.encoded !== undefined) return peer.encoded;
  const writer = new FieldWriter();
  writer.bytes(1, peer.id);
  for (const addr of peer.addrs) writer.bytes(2, addr);
  return writer.finish();
}

const LENGTH_PREFIX_BYTES = 5;

/** The message with its length in front, as it goes over a stream. */
export function encodeMessage(message: Partial<KadMessage> & { readonly type: KadType }): Uint8Array {
  const writer = new FieldWriter(LENGTH_PREFIX_BYTES);
  if (message.type !== KAD.PUT_VALUE) {
    writer.varint(1 * 8 + WIRE_VARINT);
    writer.varint(message.type);
  }
  if (message.key !== undefined) writer.bytes(2, message.key);
  if (message.record !== undefined) writer.bytes(3, message.record);
  for (const peer of message.closer ?? []) writer.bytes(8, encodePeer(peer));
  for (const peer of message.providers ?? []) writer.bytes(9, encodePeer(peer));
  return writer.framed(LENGTH_PREFIX_BYTES);
}

export function encodeRecord(record: KadRecord): Uint8Array {
  const writer = new FieldWriter();
  writer.bytes(1, record.key);
  writer.bytes(2, record.value);
  writer.bytes(5, Buffer.from(record.received, 'latin1'));
  return writer.finish();
}
