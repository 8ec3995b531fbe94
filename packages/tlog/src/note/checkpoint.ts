/**
 * A checkpoint (C2SP tlog-checkpoint): the name of a log, its number of entries, and its root hash.
 *
 * Contract: encoding and decoding are inverse; a non-canonical text is refused. Extension lines are neither written, because
 * an auditor could not verify them, nor accepted, so that every signature covers the whole text.
 * Bound: an origin has at most 255 bytes, which the ML-DSA signature format requires.
 */
import { RonError } from '@ron/kernel';
import { HASH_BYTES } from '../tree/hash.ts';

export interface Checkpoint {
  /** The name of the log, as a URL without its scheme: `example.com/audit`. */
  readonly origin: string;
  readonly size: number;
  readonly root: Uint8Array;
}

export const ORIGIN_BYTES_MAX = 255;
const SIZE = /^(?:0|[1-9]\d{0,15})$/;

export function encodeCheckpoint({ origin, size, root }: Checkpoint): string {
  const text = `${origin}\n${size}\n${Buffer.from(root).toString('base64')}\n`;
  decodeCheckpoint(text);
  return text;
}

export function decodeCheckpoint(text: string): Checkpoint {
  const [origin, size, root, end, ...more] = text.split('\n');
  if (origin === undefined || size === undefined || root === undefined || end !== '' || more.length > 0) {
    throw malformed('it must have three lines: origin, size, root');
  }
  if (origin === '' || Buffer.byteLength(origin) > ORIGIN_BYTES_MAX)
    throw malformed('the origin must have 1 to 255 bytes');
  if (!SIZE.test(size) || !Number.isSafeInteger(Number(size)))
    throw malformed('the size must be an integer below 2^53');
  const hash = fromBase64(root);
  if (hash?.length !== HASH_BYTES) throw malformed('the root must be 32 bytes in base64');
  return { origin, size: Number(size), root: hash };
}

/** Decodes canonical base64 with padding; undefined for any other text. */
export function fromBase64(text: string): Buffer | undefined {
  const bytes = Buffer.from(text, 'base64');
  return bytes.toString('base64') === text ? bytes : undefined;
}

const malformed = (what: string): RonError => new RonError('validation', `not a checkpoint: ${what}`);
