/**
 * A macaroon as text: base64url without padding, as it travels in `Authorization: Bearer <token>`.
 *
 * Contract: one spelling per macaroon. Padding, the other base64 alphabet, white space and stray trailing bits are
 * refused, so a token that differs in one bit is another token. Nothing here throws, and no reason repeats the token.
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
  // Node skips what it does not know; only text that comes back the same was base64url to begin with.
  if (bytes.toString('base64url') !== token) return { ok: false, reason: 'it is not base64url without padding' };
  return decodeMacaroon(bytes);
}

/** The token of an `Authorization` header, or undefined when it holds none. */
export function bearerToken(authorization: string | undefined): string | undefined {
  if (authorization === undefined || authorization.length <= SCHEME.length) return undefined;
  if (authorization.slice(0, SCHEME.length).toLowerCase() !== SCHEME) return undefined;
  return authorization.slice(SCHEME.length);
}
