/**
 * Messages to send, from a request: the checks that a schema cannot express.
 *
 * Contract: throws `validation` or `payload_too_large` that names the message; then nothing of the request is stored. Keys and
 * headers are text that UTF-8 represents exactly, so two different keys stay different on disk.
 * Bound: `MAILBOX_LIMITS`. Payloads of a framed batch are views of the body.
 */
import { schemaCheck, type RouteContext, type Static } from '@ron/ingress';
import { RonError } from '@ron/kernel';
import {
  BatchError,
  decodeBatch,
  MAILBOX_LIMITS,
  PayloadSizeError,
  SEND_BATCH,
  type OutgoingMessage,
} from '@ron/proto';
import { Head, type SendBody } from './schemas.ts';

type MessageHead = Omit<OutgoingMessage, 'payload'>;

const { headers_bytes, key_bytes, message_bytes, delay_ms: delay_ms_max } = MAILBOX_LIMITS;
/** All but tab. */
const CONTROL = /[^\P{Cc}\t]/u;
/** Seconds, as in `Request-Timeout`. */
const SECONDS = /^[0-9]{1,6}(?:\.[0-9]{1,3})?$/;
const VISIBLE_ASCII = /^[\u0020-\u007e]+$/;

const checkHead = schemaCheck(Head);

/** The messages of a framed batch. */
export function framedMessages(body: Uint8Array): OutgoingMessage[] {
  return framedItems(body).map(({ head, payload }, index) => {
    const where = `messages/${index}`;
    const checked: MessageHead = checkHead(head, where);
    checkTexts(checked, where);
    return { ...checked, payload };
  });
}

function framedItems(body: Uint8Array): ReturnType<typeof decodeBatch> {
  try {
    const items = decodeBatch(body, SEND_BATCH);
    if (items.length > 0) return items;
  } catch (error) {
    if (error instanceof PayloadSizeError) throw tooLarge(error.message);
    if (error instanceof BatchError) throw new RonError('validation', error.message);
    throw error;
  }
  throw new RonError('validation', 'the batch has no messages');
}

/** The messages of a JSON body that fits the schema. */
export function jsonMessages(messages: Static<typeof SendBody>['messages']): OutgoingMessage[] {
  return messages.map((message, index) => {
    const where = `messages/${index}`;
    checkTexts(message, where);
    return { ...message, payload: fromBase64(message.payload, where) };
  });
}

/** One message, whose body and headers are those of the request. */
export function singleMessage(
  topic: string,
  context: Pick<RouteContext, 'body_bytes' | 'headerValues'>,
): OutgoingMessage {
  const idempotency_key = keyHeader(context, 'Idempotency-Key');
  const key = keyHeader(context, 'Ron-Key');
  const delay_ms = delayHeader(context);
  const media_type = onlyHeader(context, 'Content-Type');
  const message: OutgoingMessage = {
    topic,
    payload: context.body_bytes ?? new Uint8Array(0),
    ...(idempotency_key !== undefined && { idempotency_key }),
    ...(key !== undefined && { key }),
    ...(delay_ms !== undefined && { delay_ms }),
    ...(media_type !== undefined && { headers: { 'content-type': media_type } }),
  };
  checkTexts(message, 'the request');
  return message;
}

function keyHeader(context: Pick<RouteContext, 'headerValues'>, name: string): string | undefined {
  const value = onlyHeader(context, name);
  if (value === undefined || (value.length <= key_bytes && VISIBLE_ASCII.test(value))) return value;
  throw new RonError('validation', `${name} has 1 to ${key_bytes} characters of ASCII`);
}

function delayHeader(context: Pick<RouteContext, 'headerValues'>): number | undefined {
  const value = onlyHeader(context, 'Ron-Delay');
  if (value === undefined) return undefined;
  const delay_ms = SECONDS.test(value) ? Math.round(Number(value) * 1000) : Infinity;
  if (delay_ms <= delay_ms_max) return delay_ms;
  throw new RonError('validation', `Ron-Delay is a number of seconds from 0 to ${delay_ms_max / 1000}`);
}

function onlyHeader(context: Pick<RouteContext, 'headerValues'>, name: string): string | undefined {
  const values = context.headerValues(name);
  if (values.length > 1) throw new RonError('validation', `the request repeats the header ${name}`);
  return values[0];
}

function checkTexts({ key, idempotency_key, headers }: MessageHead, where: string): void {
  if (key !== undefined) checkKey(key, `${where}/key`);
  if (idempotency_key !== undefined) checkKey(idempotency_key, `${where}/idempotency_key`);
  if (headers !== undefined) checkHeaders(headers, `${where}/headers`);
}

function checkKey(key: string, where: string): void {
  if (!key.isWellFormed()) throw new RonError('validation', `${where} is not valid Unicode`);
  if (Buffer.byteLength(key) > key_bytes)
    throw new RonError('validation', `${where} is longer than ${key_bytes} bytes`);
}

function checkHeaders(headers: Readonly<Record<string, string>>, where: string): void {
  let bytes = 0;
  for (const name in headers) {
    const value = headers[name]!;
    if (!value.isWellFormed() || CONTROL.test(value))
      throw new RonError('validation', `${where}/${name} has control characters or is not valid Unicode`);
    bytes += name.length + Buffer.byteLength(value);
  }
  if (bytes > headers_bytes) throw new RonError('validation', `${where} have more than ${headers_bytes} bytes`);
}

function fromBase64(text: string, where: string): Uint8Array {
  let payload: Uint8Array;
  try {
    payload = Uint8Array.fromBase64(text, { lastChunkHandling: 'strict' });
  } catch {
    throw new RonError('validation', `${where}/payload is not base64`);
  }
  if (payload.length > message_bytes) throw tooLarge(`${where}/payload is larger than ${message_bytes} bytes`);
  return payload;
}

const tooLarge = (message: string): RonError =>
  new RonError('payload_too_large', message, { details: { bytes_max: message_bytes } });
