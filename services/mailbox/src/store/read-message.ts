/**
 * Verified reads of messages and of the reasons of dead letters.
 *
 * Contract: a result is exactly the record that was appended, or undefined if it is damaged. The bytes belong to the caller.
 * Rejects with `not_found` if the segment was removed: the message has moved or is settled; with `not_ready` if the disk fails.
 */
import {
  decodeHeader,
  HEADER_BYTES,
  isBadSector,
  type LogRecord,
  type Position,
  type RecordHead,
  type SegmentLog,
} from '@ron/log';
import type { DeadReason } from '@ron/proto';
import { orDamaged } from './codec/bytes.ts';
import { decodeSettled } from './codec/entry-codec.ts';
import { decodeMessageId, DecodedMeta, isMetaIntact } from './codec/message-codec.ts';
import { RECORD, type MessageMeta, type MessagePlace } from './records.ts';
import type { LedgerTopics } from './ledger/ledger-topics.ts';

export interface StoredMessage {
  /** ULID, 16 bytes. */
  readonly id: Uint8Array;
  readonly meta: MessageMeta;
  readonly payload: Uint8Array;
}

/** Why a message is a dead letter. */
export interface DeadDetails {
  readonly reason: DeadReason;
  readonly attempts: number;
  readonly dead_ms: number;
  readonly error: string | undefined;
}

/** A record whose bytes cannot be read counts as damaged. */
export async function unlessBadSector<T>(read: Promise<T>): Promise<T | undefined> {
  try {
    return await read;
  } catch (error) {
    if (!isBadSector(error)) throw error;
    return undefined;
  }
}

type FindDead = (seq: number) => DeadDetails | undefined;

/** Undefined if the record is damaged. Rejects as `MessageReader`. One call at a time. */
export type DeadReader = (at: Position, seq: number) => Promise<DeadDetails | undefined>;

export class MessageReader {
  readonly #log: SegmentLog;
  readonly #topics: LedgerTopics;

  constructor(log: SegmentLog, topics: LedgerTopics) {
    this.#log = log;
    this.#topics = topics;
  }

  /** From the page cache; undefined as well if that would wait for the disk. */
  readNow(place: MessagePlace): StoredMessage | undefined {
    const { payload_bytes, meta_bytes } = place;
    const shared = this.#log.peekNow(place, payload_bytes, meta_bytes);
    if (shared === undefined) return undefined;
    // One buffer from Node's pool costs less than one of its own.
    const copy = Buffer.allocUnsafe(payload_bytes + meta_bytes);
    copy.set(shared.payload);
    copy.set(shared.meta, payload_bytes);
    return this.#message({
      head: shared.head,
      payload: copy.subarray(0, payload_bytes),
      meta: copy.subarray(payload_bytes),
    });
  }

  async read(place: MessagePlace): Promise<StoredMessage | undefined> {
    const { payload_bytes, meta_bytes } = place;
    return this.readNow(place) ?? this.#message(await this.#log.read(place, payload_bytes, meta_bytes));
  }

  /** Without its payload, which may be damaged. */
  async readMeta({
    segment,
    offset,
    payload_bytes,
    meta_bytes,
  }: MessagePlace): Promise<Omit<StoredMessage, 'payload'> | undefined> {
    const head = await this.#head({ segment, offset });
    if (head === undefined || head.payload_bytes !== payload_bytes || head.meta_bytes !== meta_bytes) return undefined;
    const bytes = await this.#bytes({ segment, offset: offset + HEADER_BYTES + payload_bytes }, meta_bytes);
    const id = decodeMessageId(head.id);
    if (bytes === undefined || id === undefined || !isMetaIntact(id, bytes)) return undefined;
    return orDamaged(() => ({ id: id.ulid, meta: new DecodedMeta(this.#topics.nameOf(id.topic), bytes) }));
  }

  /** Returns a reader of dead letters that keeps the last record: neighbours mostly died in one append. */
  deadReader(): DeadReader {
    let last: { readonly at: Position; readonly find: FindDead } | undefined;
    return async (at, seq) => {
      if (last?.at.segment !== at.segment || last.at.offset !== at.offset)
        last = { at, find: await this.#readDead(at) };
      return last.find(seq);
    };
  }

  /** From the `settled` record, or from the message itself if it has moved since. */
  async #readDead(at: Position): Promise<FindDead> {
    const head = await this.#head(at);
    if (head === undefined) return () => undefined;
    if (head.type === RECORD.message) {
      const details = await this.#deadOfMoved({ ...at, ...head });
      return () => details;
    }
    const read = await this.#log.read(at, head.payload_bytes, head.meta_bytes);
    if (read === undefined || head.type !== RECORD.settled) return () => undefined;
    const entries = orDamaged(() => decodeSettled(Buffer.from(read.payload), this.#topics.nameOf)) ?? [];
    const bySeq = new Map(entries.flatMap((entry) => (entry.outcome === 'dead' ? [[entry.seq, entry]] : [])));
    return (seq) => bySeq.get(seq);
  }

  async #deadOfMoved(place: MessagePlace): Promise<DeadDetails | undefined> {
    const { state } = ((await this.readMeta(place))?.meta as DecodedMeta | undefined) ?? {};
    return state?.dead && { ...state.dead, attempts: state.attempts, error: state.error };
  }

  /** Any record. */
  async readRecord(at: Position): Promise<LogRecord | undefined> {
    const head = await this.#head(at);
    return head && (await this.#log.read(at, head.payload_bytes, head.meta_bytes));
  }

  async #head(at: Position): Promise<RecordHead | undefined> {
    const header = await this.#bytes(at, HEADER_BYTES);
    return header && decodeHeader(header, 0, this.#log.files.saltOf(at.segment));
  }

  async #bytes({ segment, offset }: Position, length: number): Promise<Buffer | undefined> {
    const bytes = Buffer.allocUnsafe(length);
    return (await this.#log.files.read(segment, bytes, length, offset)) === length ? bytes : undefined;
  }

  #message(record: LogRecord | undefined): StoredMessage | undefined {
    const id = record && decodeMessageId(record.head.id);
    if (record === undefined || id === undefined || record.head.type !== RECORD.message) return undefined;
    const { buffer, byteOffset, length } = record.meta;
    return orDamaged(() => ({
      id: id.ulid,
      meta: new DecodedMeta(this.#topics.nameOf(id.topic), Buffer.from(buffer, byteOffset, length)),
      payload: record.payload,
    }));
  }
}
