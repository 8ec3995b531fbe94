/**
 * A macaroon as text: base64url without padding, as sent in `Authorization: Bearer <token>`.
 *
 * Contract: one encoding per macaroon. Padding, the other base64 alphabet, white space and stray trailing bits are
 * refused, so a token that differs in one bit is another token. Never throws, and no reason repeats the token.
 * Bound: `TOKEN_CHARS_MAX`, checked before the text is read.
 */
import { TOKEN_CHARS_MAX } from './limits.ts';
import { decodeMacaroon, encodeMacaroon } from './macaroon.ts';
import type { Decoded, Macaroon } from './macaroon.ts';

const SCHEME = 'bearer ';

export function encodeToken(macaroon: Macaroon): string {
  return Buffer.from(encodeMacaroon(macaroon)).toString('base64url');
}

export function decodeToken(token: string): Decoded<Macaroon> {
  if (token.length > TOKEN_CHARS_MAX) {
    return { ok: false, reason: `it has ${token.length} characters, the limit is ${TOKEN_CHARS_MAX}` };
  }
  const bytes = Buffer.from(token, 'base64url');
  // Node skips invalid characters: only text that survives the round trip is valid base64url.
  if (bytes.toString('base64url') !== token) return { ok: false, reason: 'it is not base64url without padding' };
  return decodeMacaroon(bytes);
}

/** The token of an `Authorization` header, or undefined if it has none. */
export function bearerToken(authorization: string | undefined): string | undefined {
  if (authorization === undefined || authorization.length <= SCHEME.length) return undefined;
  if (authorization.slice(0, SCHEME.length).toLowerCase() !== SCHEME) return undefined;
  return authorization.slice(SCHEME.length);
}
