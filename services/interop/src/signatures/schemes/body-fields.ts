/**
 * Values of a verified body: its BLAKE3 and short texts of its JSON.
 *
 * Contract: a value depends on the bytes of the body only, never on an unsigned header such as `Content-Type`.
 */
import { blake3 } from '@napi-rs/blake-hash';
import type { Members } from '../json-members.ts';
import { isPlainText } from './claim.ts';

const B3_PREFIX = 'b3:';
const B3_CHARS = 67;

/** The dedup value of a delivery without a signed id. */
export const b3Of = (body: Uint8Array): string => `b3:${blake3(body).toString('hex')}`;

/** The hash of a verified body: a dedup value without a signed id begins with it. */
export const b3By = (dedup: string, body: Uint8Array): string =>
  dedup.startsWith(B3_PREFIX) ? dedup.slice(0, B3_CHARS) : b3Of(body);

/** The dedup value of a signed id. The prefix keeps it apart from a hash. */
export const idValue = (id: string): string => `id:${id}`;

/** The member as a short printable text; undefined if it is absent or anything else. */
export function textMember(members: Members, name: string): string | undefined {
  const value = members[name];
  return isPlainText(value) ? value : undefined;
}
