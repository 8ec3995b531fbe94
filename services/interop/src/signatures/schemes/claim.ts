/**
 * The parts that the schemes share: the claim of a request before its signature is checked, and the strict readers of headers.
 *
 * Contract: a reader accepts one spelling of a value and refuses all others, so a signed value has one text. It never throws.
 * Bound: `TEXT_CHARS_MAX` characters of an id or event; the listener bounds headers. Overflow: refused, or left out if unsigned.
 */
import type { TakeTurn } from '../json-members.ts';
import type { SignedRequest, Verified } from '../verify.ts';

export interface ClaimedSignature {
  readonly kind: 'hmac' | 'ed25519';
  readonly bytes: Uint8Array;
}

export interface SignedClaim {
  /** The signed bytes are this ASCII text, then the body. */
  readonly prefix: string;
  readonly algorithm: 'sha256' | 'sha512';
  readonly signatures: readonly ClaimedSignature[];
  /** The signed time in seconds since 1970. */
  readonly signed_s?: number;
  /** Called only once the signature is verified: it may read the JSON of the body, in turns. */
  describe(takeTurn: TakeTurn): Description | Promise<Description>;
}

export type Description = Omit<Verified, 'ok' | 'secret_version'>;

/** A claim, or why the request holds none: a fixed text. */
export type Parsed = SignedClaim | string;

export const SHA256_BYTES = 32;
export const ED25519_BYTES = 64;
/** Of an id or event. */
export const TEXT_CHARS_MAX = 256;
/** Visible ASCII: no white space, no control characters. */
const PRINTABLE = /^[!-~]+$/;
/** Twelve digits last for 30 000 years and stay exact in a double. */
const TIME = /^[0-9]{1,12}$/;
const LOWER_HEX = /^[0-9a-f]+$/;
const BASE64 = /^[A-Za-z0-9+/]+={0,2}$/;

/** The header if it occurs in exactly one line. */
export function soleHeader(request: SignedRequest, name: string): string | undefined {
  const values = request.headerValues(name);
  return values.length === 1 ? values[0] : undefined;
}

export function isRepeated(request: SignedRequest, name: string): boolean {
  return request.headerValues(name).length > 1;
}

/** A header that no signature covers, marked as such; undefined if it is not a short printable text. */
export function unsignedText(request: SignedRequest, name: string): string | undefined {
  const value = soleHeader(request, name);
  return isPlainText(value) ? `unsigned-${value}` : undefined;
}

/** Whether the value is a short text of visible ASCII. */
export function isPlainText(value: unknown): value is string {
  return typeof value === 'string' && value.length <= TEXT_CHARS_MAX && PRINTABLE.test(value);
}

export function isTime(text: string | undefined): text is string {
  return text !== undefined && TIME.test(text);
}

/** The bytes of lower-case hex of exactly this length. */
export function decodeHex(text: string, bytes: number): Uint8Array | undefined {
  if (text.length !== 2 * bytes || !LOWER_HEX.test(text)) return undefined;
  return Buffer.from(text, 'hex');
}

/** The bytes of base64 with padding and without stray bits, of exactly this length if it is given. */
export function decodeBase64(text: string, bytes?: number): Uint8Array | undefined {
  if (bytes !== undefined && text.length !== 4 * Math.ceil(bytes / 3)) return undefined;
  if (!BASE64.test(text)) return undefined;
  const decoded = Buffer.from(text, 'base64');
  if (decoded.toString('base64') !== text) return undefined;
  return bytes === undefined || decoded.length === bytes ? decoded : undefined;
}
