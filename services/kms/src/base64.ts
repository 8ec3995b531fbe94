/** Padded base64 of RFC 4648 in its canonical form; any other text is a 400. */
import { RonError } from '@ron/kernel';

export function fromBase64(text: string, field: string, bytes_max: number): Buffer {
  const bytes = Buffer.from(text, 'base64');
  if (bytes.toString('base64') !== text) throw new RonError('validation', `${field} is not valid base64 with padding`);
  if (bytes.length > bytes_max) {
    throw new RonError('payload_too_large', `${field} has ${bytes.length} bytes, the limit is ${bytes_max}`);
  }
  return bytes;
}

export function toBase64(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('base64');
}

/** The length of the base64 form of so many bytes. */
export const base64Chars = (bytes: number): number => Math.ceil(bytes / 3) * 4;
