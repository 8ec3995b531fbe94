/**
 * The bytes that a signature covers. Public and exact: anybody can check one with OpenSSL.
 *
 *     ron-kms/v1\n<kid with #vN>\n<payload_b3>\n
 *
 * A key of purpose `raw` signs the given bytes as they are.
 */
import { RonError } from '@ron/kernel';
import { RAW_PURPOSE } from '../keys/kid.ts';

export const MESSAGE_BYTES_MAX = 64 * 1024;

/** What is to be signed, or was: a hash, or for `raw` keys the bytes. */
export interface Payload {
  readonly payload_b3?: string | undefined;
  readonly message?: Uint8Array | undefined;
}

export function signedBytes(purpose: string, kid: string, payload: Payload): Uint8Array {
  const { payload_b3, message } = payload;
  if (purpose === RAW_PURPOSE) {
    if (message !== undefined && payload_b3 === undefined) return message;
    throw new RonError('validation', 'a key of purpose raw takes message_b64, and no payload_b3');
  }
  if (payload_b3 !== undefined && message === undefined) return Buffer.from(`ron-kms/v1\n${kid}\n${payload_b3}\n`);
  throw new RonError('validation', 'this key takes payload_b3; message_b64 is for keys of purpose raw');
}
