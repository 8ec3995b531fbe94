/** The text of a JSON body. Bytes that are not UTF-8 are refused, not replaced: a signature over them would not match. */
import { isAscii, isUtf8 } from 'node:buffer';
import { RonError } from '@ron/kernel';

export function jsonText(body: Uint8Array): string {
  const bytes = body instanceof Buffer ? body : Buffer.from(body.buffer, body.byteOffset, body.byteLength);
  if (isAscii(bytes)) return bytes.toString('latin1');
  if (!isUtf8(bytes)) throw new RonError('bad_request', 'the body is not UTF-8');
  return bytes.toString('utf8');
}
