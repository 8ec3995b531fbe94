/**
 * The record of a message: the id in its header, and the meta.
 *
 *     id    ULID (16) | topic number u16 | flags u8 | checksum of the meta u32 | mark u48
 *     meta  flags u8 | headers u8 | sent u48 | not before u48 | BLAKE3 of the payload (32)
 *           | replaces u48 | state | key | idempotency key | replay of | headers: name, value ...
 *
 * The id is covered by the checksum of the header, so a message with a damaged body still has its topic, and its meta has a
 * checksum of its own. `mark`: all records up to this number were durable when it was appended (see sequence.ts).
 * `replaces`: the dead letter that this message replays and removes; one record, so that no crash can separate the two.
 * `state` is only in a moved message. Flags of the id: moved, dead.
 *
 * Contract: `DecodedMeta` throws `MalformedRecord` unless every field ends inside the meta and the last one at its end. It
 * decodes texts when they are read: a start needs few of them.
 */
import { crc32 } from 'node:zlib';
import type { DeadReason } from '@ron/proto';
import { DEAD_REASONS, type MessageMeta, type MessageState } from '../records.ts';
import { ByteReader, ByteWriter, MalformedRecord } from './bytes.ts';

const ULID_BYTES = 16;
const MESSAGE_ID_BYTES = 29;
const MARK_BYTES = 6;
const B3_BYTES = 32;
const U32 = 2 ** 32;

/** Flags of the id. */
const IS_MOVED = 1;
const IS_DEAD = 2;
const ID_FLAGS = IS_MOVED | IS_DEAD;

/** Flags of the meta. */
const HAS = { key: 1, idempotency_key: 2, replay_of: 4, replaces: 8, state: 16 } as const;
const META_FLAGS = 31;
const FIXED_BYTES = 14 + B3_BYTES;
/** The meta of a message without keys and headers. */
export const META_BYTES_MIN = FIXED_BYTES;

const writer = new ByteWriter();

export function reasonByte(reason: DeadReason): number {
  return DEAD_REASONS.indexOf(reason) + 1;
}

export function reasonOf(byte: number): DeadReason {
  const reason = DEAD_REASONS[byte - 1];
  if (reason === undefined) throw new MalformedRecord('an unknown reason of a dead letter');
  return reason;
}

/** The id of a record that is not a message. */
export function markId(mark: number): Uint8Array {
  return writer.begin().u48(mark).end();
}

/** Undefined if it is not the id of such a record. */
export function markIn(id: Uint8Array): number | undefined {
  return id.length === MARK_BYTES ? u48At(id, 0) : undefined;
}

const u48At = (bytes: Uint8Array, at: number): number =>
  bytes[at]! +
  bytes[at + 1]! * 2 ** 8 +
  bytes[at + 2]! * 2 ** 16 +
  bytes[at + 3]! * 2 ** 24 +
  (bytes[at + 4]! + bytes[at + 5]! * 2 ** 8) * U32;

/** The id of a message; decodes fields when they are read. */
export class MessageId {
  readonly #bytes: Uint8Array;

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes;
  }

  get ulid(): Uint8Array {
    return ulidIn(this.#bytes);
  }

  get topic(): number {
    return this.#bytes[16]! + this.#bytes[17]! * 2 ** 8;
  }

  get isMoved(): boolean {
    return (this.#bytes[18]! & IS_MOVED) !== 0;
  }

  get isDead(): boolean {
    return (this.#bytes[18]! & IS_DEAD) !== 0;
  }

  get meta_crc(): number {
    const bytes = this.#bytes;
    return (bytes[19]! | (bytes[20]! << 8) | (bytes[21]! << 16) | (bytes[22]! << 24)) >>> 0;
  }

  get mark(): number {
    return u48At(this.#bytes, 23);
  }
}

export function encodeMessageId(
  ulid: Uint8Array,
  topic: number,
  meta: Uint8Array,
  mark: number,
  moved?: MessageState,
): Uint8Array {
  const flags = moved === undefined ? 0 : IS_MOVED | (moved.dead === undefined ? 0 : IS_DEAD);
  return writer.begin().bytes(ulid).u16(topic).u8(flags).u32(crc32(meta)).u48(mark).end();
}

/** Undefined if it is not the id of a message. */
export function decodeMessageId(id: Uint8Array): MessageId | undefined {
  return id.length === MESSAGE_ID_BYTES && id[18]! <= ID_FLAGS ? new MessageId(id) : undefined;
}

/** A copy: a view of a small array would first move that array out of the heap, which is slow and makes garbage. */
function ulidIn(id: Uint8Array): Uint8Array {
  const ulid = new Uint8Array(ULID_BYTES);
  for (let at = 0; at < ULID_BYTES; at++) ulid[at] = id[at]!;
  return ulid;
}

export const isMetaIntact = ({ meta_crc }: MessageId, meta: Uint8Array): boolean => crc32(meta) === meta_crc;

export interface MetaExtra {
  /** The number of the dead letter that the message replays and removes. */
  readonly replaces?: number | undefined;
  /** Of a moved message. */
  readonly state?: MessageState | undefined;
}

export function encodeMeta(meta: MessageMeta, { replaces, state }: MetaExtra = {}): Buffer {
  const { key, idempotency_key, replay_of } = meta;
  const headers = Object.entries(meta.headers);
  const flags =
    (key === undefined ? 0 : HAS.key) |
    (idempotency_key === undefined ? 0 : HAS.idempotency_key) |
    (replay_of === undefined ? 0 : HAS.replay_of) |
    (replaces === undefined ? 0 : HAS.replaces) |
    (state === undefined ? 0 : HAS.state);
  writer.begin().u8(flags).u8(headers.length).u48(meta.sent_ms).u48(meta.not_before_ms).bytes(meta.b3);
  if (replaces !== undefined) writer.u48(replaces);
  if (state !== undefined) writeState(state);
  if (key !== undefined) writer.text(key);
  if (idempotency_key !== undefined) writer.text(idempotency_key);
  if (replay_of !== undefined) writer.text(replay_of);
  for (const [name, value] of headers) writer.text(name).text(value);
  return writer.end();
}

function writeState(state: MessageState): void {
  const { dead } = state;
  writer.u32(state.delivery).u32(state.attempts).f64(state.nonce).u48(state.until_ms).u32(state.visibility_ms);
  writer.u48(state.not_before_ms).u8(dead === undefined ? 0 : reasonByte(dead.reason));
  writer.u48(dead?.dead_ms ?? 0).text(state.error);
}

function readState(reader: ByteReader): MessageState {
  const [delivery, attempts, nonce] = [reader.u32(), reader.u32(), reader.f64()];
  const [until_ms, visibility_ms, not_before_ms] = [reader.u48(), reader.u32(), reader.u48()];
  const [reason, dead_ms] = [reader.u8(), reader.u48()];
  const dead = reason === 0 ? undefined : { reason: reasonOf(reason), dead_ms };
  return { delivery, attempts, nonce, until_ms, visibility_ms, not_before_ms, error: reader.optionalText(), dead };
}

/** Texts are decoded when they are read, from bytes that must not change until then. */
export class DecodedMeta implements MessageMeta {
  readonly topic: string;
  readonly sent_ms: number;
  readonly not_before_ms: number;
  readonly replaces: number | undefined;
  readonly state: MessageState | undefined;
  readonly #bytes: Buffer;
  readonly #from: number;
  readonly #flags: number;
  /** Offsets of the texts. */
  #key_at = 0;
  #idempotency_key_at = 0;
  #replay_of_at = 0;
  readonly #headers_at: number;

  /** The meta is the end of `bytes`, from `from` on. */
  constructor(topic: string, bytes: Buffer, from = 0) {
    if (bytes.length < from + FIXED_BYTES) throw new MalformedRecord('the meta of a message is too short');
    const flags = bytes[from]!;
    if (flags > META_FLAGS) throw new MalformedRecord('unknown flags of a message');
    this.topic = topic;
    this.#bytes = bytes;
    this.#from = from;
    this.#flags = flags;
    this.sent_ms = u48At(bytes, from + 2);
    this.not_before_ms = u48At(bytes, from + 8);
    let at = from + FIXED_BYTES;
    if ((flags & (HAS.replaces | HAS.state)) === 0) {
      this.replaces = this.state = undefined;
    } else {
      const reader = new ByteReader(bytes.subarray(at));
      this.replaces = (flags & HAS.replaces) === 0 ? undefined : reader.u48();
      this.state = (flags & HAS.state) === 0 ? undefined : readState(reader);
      at = bytes.length - reader.rest;
    }
    if ((flags & HAS.key) !== 0) at = this.#after((this.#key_at = at));
    if ((flags & HAS.idempotency_key) !== 0) at = this.#after((this.#idempotency_key_at = at));
    if ((flags & HAS.replay_of) !== 0) at = this.#after((this.#replay_of_at = at));
    this.#headers_at = at;
    for (let left = 2 * bytes[from + 1]!; left > 0; left--) at = this.#after(at);
    if (at !== bytes.length) throw new MalformedRecord('the meta of a message has bytes after its last field');
  }

  get b3(): Uint8Array {
    return this.#bytes.subarray(this.#from + FIXED_BYTES - B3_BYTES, this.#from + FIXED_BYTES);
  }

  get key(): string | undefined {
    return (this.#flags & HAS.key) === 0 ? undefined : this.#textAt(this.#key_at);
  }

  get idempotency_key(): string | undefined {
    return (this.#flags & HAS.idempotency_key) === 0 ? undefined : this.#textAt(this.#idempotency_key_at);
  }

  get replay_of(): string | undefined {
    return (this.#flags & HAS.replay_of) === 0 ? undefined : this.#textAt(this.#replay_of_at);
  }

  get headers(): Readonly<Record<string, string>> {
    const headers: Record<string, string> = {};
    let at = this.#headers_at;
    while (at < this.#bytes.length) {
      const value_at = this.#after(at);
      // Not by assignment: a header may be named `__proto__`.
      const property = { value: this.#textAt(value_at), enumerable: true, configurable: true, writable: true };
      Object.defineProperty(headers, this.#textAt(at), property);
      at = this.#after(value_at);
    }
    return headers;
  }

  /** The end of the text at an offset. */
  #after(at: number): number {
    if (at + 2 > this.#bytes.length) throw new MalformedRecord('a text begins beyond the meta');
    const end = at + 2 + this.#bytes[at]! + this.#bytes[at + 1]! * 2 ** 8;
    if (end > this.#bytes.length) throw new MalformedRecord('a text ends beyond the meta');
    return end;
  }

  #textAt(at: number): string {
    return this.#bytes.toString('utf8', at + 2, this.#after(at));
  }
}

/** The meta of a message whose own meta is damaged. */
export function lostMeta(topic: string, sent_ms: number): MessageMeta {
  return {
    topic,
    key: undefined,
    idempotency_key: undefined,
    sent_ms,
    not_before_ms: 0,
    headers: {},
    replay_of: undefined,
    b3: new Uint8Array(B3_BYTES),
  };
}
