/**
 * The records of the spool's log.
 *
 *     delivery   id: the idempotency key   payload: the body   meta: below
 *     settled    no id                     payload: the ids of deliveries that are in mailbox, 16 bytes each
 *
 *     meta:  provider length (1) | provider | id (16) | received_ms (8) | JSON of topic, headers and the rest of the receipt
 *
 * The fields before the JSON are those of the index, so that a start parses no JSON. A settled record always lies behind the
 * deliveries that it names.
 */
import { RonError } from '@ron/kernel';
import { META_BYTES_MAX, type LogRecord, type RecordInput } from '@ron/log';
import { formatUlid, ULID_BYTES, ulidBytes, type WebhookReceipt } from '@ron/proto';
import type { Delivery } from '../../mailbox/delivery.ts';

/** A delivery with its receipt, from which a start restores a receipt that a crash prevented. */
export interface SpooledDelivery extends Delivery {
  readonly receipt: WebhookReceipt;
}

export const RECORD = { delivery: 1, settled: 2 } as const;
export const KEY_BYTES = 32;
const PROVIDER_BYTES_MAX = 255;
const HEX_KEY = /^[0-9a-f]{64}$/;
const NO_ID = new Uint8Array(0);
/** Of a settled record. */
export const SETTLED_IDS_MAX = 4096;

/** The fields of the index. */
export interface IndexedMeta {
  readonly provider: string;
  readonly id: Uint8Array;
  readonly received_ms: number;
}

/** The fields that only the record has. */
interface StoredFields {
  readonly topic: string;
  readonly headers: Readonly<Record<string, string>>;
  /** Without the fields that the delivery has too. */
  readonly receipt: Omit<WebhookReceipt, 'id' | 'provider' | 'received_ms' | 'topic'>;
}

/** The bytes of an idempotency key. Throws `internal` unless it has 64 hex digits. */
export function keyBytes(idempotency_key: string): Buffer {
  if (!HEX_KEY.test(idempotency_key)) throw new RonError('internal', 'an idempotency key has 64 hex digits');
  return Buffer.from(idempotency_key, 'hex');
}

export function encodeDelivery(delivery: SpooledDelivery): RecordInput {
  const { id, provider, received_ms, topic, headers, payload } = delivery;
  const { id: _id, provider: _provider, received_ms: _received, topic: _topic, ...receipt } = delivery.receipt;
  const fields: StoredFields = { topic, headers, receipt };
  const name = Buffer.from(provider, 'latin1');
  if (name.length > PROVIDER_BYTES_MAX) throw new RonError('internal', 'the name of a provider has at most 255 bytes');
  const time = Buffer.alloc(8);
  time.writeDoubleLE(received_ms);
  const meta = Buffer.concat([Buffer.of(name.length), name, ulidBytes(id), time, Buffer.from(JSON.stringify(fields))]);
  if (meta.length > META_BYTES_MAX)
    throw new RonError('payload_too_large', `headers and receipt of a webhook take at most ${META_BYTES_MAX} bytes`);
  return { type: RECORD.delivery, id: keyBytes(delivery.idempotency_key), payload, meta };
}

/** Undefined if the meta has no such fields. */
export function decodeIndexed(meta: Buffer): IndexedMeta | undefined {
  const end = jsonAt(meta);
  if (end === undefined) return undefined;
  const at = end - ULID_BYTES - 8;
  return {
    provider: meta.toString('latin1', 1, at),
    id: Uint8Array.from(meta.subarray(at, at + ULID_BYTES)),
    received_ms: meta.readDoubleLE(at + ULID_BYTES),
  };
}

/** Undefined if the record is not that of a delivery. The payload is a view of the record. */
export function decodeDelivery({ head, payload, meta: bytes }: LogRecord): SpooledDelivery | undefined {
  const meta = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const indexed = head.type === RECORD.delivery ? decodeIndexed(meta) : undefined;
  const fields = indexed && fieldsIn(meta.toString('utf8', jsonAt(meta)));
  if (indexed === undefined || fields === undefined) return undefined;
  const { provider, received_ms } = indexed;
  const { topic, headers, receipt } = fields;
  const id = formatUlid(indexed.id);
  return {
    id,
    provider,
    topic,
    idempotency_key: Buffer.from(head.id).toString('hex'),
    headers,
    received_ms,
    payload,
    receipt: { ...receipt, id, provider, received_ms, topic },
  };
}

/** The checksum of the record has been verified: fields of other types are a defect of another version. */
function fieldsIn(text: string): StoredFields | undefined {
  try {
    const fields = JSON.parse(text) as Partial<StoredFields> | null;
    const { topic, headers, receipt } = fields ?? {};
    if (typeof topic !== 'string' || !isRecord(headers) || !isRecord(receipt)) return undefined;
    return { topic, headers, receipt };
  } catch {
    return undefined;
  }
}

function isRecord<T extends object>(value: T | null | undefined): value is T {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function jsonAt(meta: Buffer): number | undefined {
  if (meta.length === 0) return undefined;
  const at = 1 + meta[0]! + ULID_BYTES + 8;
  return at <= meta.length ? at : undefined;
}

/** `ids`: 16 bytes each. */
export function encodeSettled(ids: Uint8Array): RecordInput {
  return { type: RECORD.settled, id: NO_ID, payload: ids };
}

export function* decodeSettled(payload: Buffer): Generator<Uint8Array> {
  for (let at = 0; at + ULID_BYTES <= payload.length; at += ULID_BYTES) yield payload.subarray(at, at + ULID_BYTES);
}
