/**
 * Decompresses directories and metadata of packs.
 *
 * Contract: [edge I-10] the decoded bytes, or `validation` for broken input and for more than `bytes_max` decoded bytes. There is no limit
 * of the ratio: valid directories reach 280x. Runs in the thread pool of Node.
 * Bound: `bytes_max` decoded bytes, and the window of the codec (16 MiB at most).
 */
import { promisify } from 'node:util';
import { brotliDecompress, constants, gunzip, zstdDecompress } from 'node:zlib';
import { RonError } from '@ron/kernel/core';
import type { Codec } from './header.ts';

const ZSTD_WINDOW_LOG_MAX = 24;

const gzip = promisify(gunzip);
const br = promisify(brotliDecompress);
const zstd = promisify(zstdDecompress);

function decode(bytes: Uint8Array, codec: Codec, bytes_max: number): Promise<Uint8Array> {
  const options = { maxOutputLength: bytes_max };
  if (codec === 'gzip') return gzip(bytes, options);
  if (codec === 'br') return br(bytes, options);
  return zstd(bytes, { ...options, params: { [constants.ZSTD_d_windowLogMax]: ZSTD_WINDOW_LOG_MAX } });
}

/** `what` names the bytes in the error, for example "a directory". */
export async function decompress(
  bytes: Uint8Array,
  codec: Codec,
  bytes_max: number,
  what: string,
): Promise<Uint8Array> {
  const tooLarge = (cause?: unknown): RonError =>
    new RonError('validation', `${what} decodes to more than ${bytes_max} bytes`, { cause });
  if (codec === 'none') {
    if (bytes.length > bytes_max) throw tooLarge();
    return bytes;
  }
  try {
    return await decode(bytes, codec, bytes_max);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ERR_BUFFER_TOO_LARGE') throw tooLarge(error);
    throw new RonError('validation', `${what} is not valid ${codec}: ${(error as Error).message}`, { cause: error });
  }
}
