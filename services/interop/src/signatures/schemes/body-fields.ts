/**
 * Values of a verified body: its BLAKE3 and fields of its JSON.
 *
 * Contract: a value depends on the bytes of the body only, never on an unsigned header such as `Content-Type`. A body that
 * is not a JSON object in UTF-8 has no fields.
 * Bound: bodies of `INTEROP_LIMITS.webhook_bytes` are parsed. Overflow: no fields.
 */
import { blake3 } from '@napi-rs/blake-hash';
import { INTEROP_LIMITS } from '@ron/proto';
import { isPlainText } from './claim.ts';

export type Fields = Readonly<Record<string, unknown>>;

const UTF8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
const B3_PREFIX = 'b3:';
const B3_CHARS = 67;
const OPENING_BRACE = 0x7b;
const WHITE_SPACE = new Set([0x20, 0x09, 0x0a, 0x0d]);

/** The dedup value of a delivery without a signed id. */
export const b3Of = (body: Uint8Array): string => `b3:${blake3(body).toString('hex')}`;

/** The hash of a verified body: a dedup value without a signed id begins with it. */
export const b3By = (dedup: string, body: Uint8Array): string =>
  dedup.startsWith(B3_PREFIX) ? dedup.slice(0, B3_CHARS) : b3Of(body);

/** The dedup value of a signed id. The prefix keeps it apart from a hash. */
export const idValue = (id: string): string => `id:${id}`;

/** The fields of a JSON object; none if the body is anything else. */
export function jsonFields(body: Uint8Array, bytes_max: number = INTEROP_LIMITS.webhook_bytes): Fields {
  if (body.length > bytes_max || !opensObject(body)) return {};
  try {
    return fieldsOf(JSON.parse(UTF8.decode(body)));
  } catch {
    return {};
  }
}

export const fieldsOf = (value: unknown): Fields =>
  typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Fields) : {};

/** The field as a short printable text; undefined if it is absent or anything else. */
export function textField(fields: Fields, name: string): string | undefined {
  const value = Object.hasOwn(fields, name) ? fields[name] : undefined;
  return isPlainText(value) ? value : undefined;
}

/** Forms and arrays are not decoded. */
function opensObject(body: Uint8Array): boolean {
  let at = 0;
  while (WHITE_SPACE.has(body[at] ?? OPENING_BRACE)) at += 1;
  return body[at] === OPENING_BRACE;
}
