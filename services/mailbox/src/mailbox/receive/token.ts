/**
 * The token of a delivery, for ack, nack and extend.
 *
 *     0     6          10      14            18
 *     | seq | delivery | nonce | topic tag   |      big-endian, as base64url
 *
 * Contract: `decodeToken` returns the parts of a token that was made for this topic, and undefined for any other text. The
 * nonce makes a token hard to guess; the message table holds the nonce of the latest delivery.
 */
import { blake3 } from '@napi-rs/blake-hash';
import type { TokenParts } from '../../queue/states.ts';

const TOKEN_BYTES = 18;
const TOKEN_CHARS = 24;
const TOKEN = /^[A-Za-z0-9_-]{24}$/;

/** The first four bytes of the hash of the name: a token of another topic is not a token of this one. */
export const topicTag = (topic: string): number => blake3(topic).readUInt32BE(0);

export function encodeToken({ seq, delivery, nonce }: TokenParts, tag: number): string {
  const bytes = Buffer.allocUnsafe(TOKEN_BYTES);
  bytes.writeUIntBE(seq, 0, 6);
  bytes.writeUInt32BE(delivery, 6);
  bytes.writeUInt32BE(nonce, 10);
  bytes.writeUInt32BE(tag, 14);
  return bytes.toString('base64url');
}

export function decodeToken(token: string, tag: number): TokenParts | undefined {
  if (token.length !== TOKEN_CHARS || !TOKEN.test(token)) return undefined;
  const bytes = Buffer.from(token, 'base64url');
  if (bytes.readUInt32BE(14) !== tag) return undefined;
  return { seq: bytes.readUIntBE(0, 6), delivery: bytes.readUInt32BE(6), nonce: bytes.readUInt32BE(10) };
}
