/**
 * The bytes that a signature covers. The format is public and exact, so that OpenSSL can verify a signature.
 *
 *     ron-kms/v1\n<kid with #vN>\n<payload_b3>\n
 *
 * A key with purpose `raw` signs the given bytes unchanged.
 */
import { RonError } from '@ron/kernel';
import { signedText } from '@ron/proto';
import { RAW_PURPOSE } from '../keys/kid.ts';

export const MESSAGE_BYTES_MAX = 64 * 1024;

/** The payload of a signature: a hash, or for `raw` keys the bytes. */
export interface Payload {
  readonly payload_b3?: string | undefined;
  readonly message?: Uint8Array | undefined;
}

export function signedBytes(purpose: string, kid: string, payload: Payload): Uint8Array {
  const { payload_b3, message } = payload;
  if (purpose === RAW_PURPOSE) {
    if (message !== undefined && payload_b3 === undefined) return message;
    throw new RonError('validation', 'keys with purpose raw require message_b64 instead of payload_b3');
  }
  if (payload_b3 !== undefined && message === undefined) return Buffer.from(signedText(kid, payload_b3));
  throw new RonError('validation', 'the key requires payload_b3; message_b64 is for keys with purpose raw');
}
