/**
 * The body of an answer that must not be stored (`no-store`, `private`): in memory, for one client.
 *
 * Contract: as `BodyWriter`, but no byte reaches the disk and the body is never cached.
 * Bound: `BYTES_MAX` bytes. Overflow: `payload_too_large`.
 */
import { addressOf } from '@ron/client';
import { RonError } from '@ron/kernel';
import type { BodyWriter, StoredBody } from '../../cache/asset-cache.ts';
import { ramSource } from '../../cache/asset-source.ts';

const BYTES_MAX = 1024 * 1024;

export function unstoredWriter(bytes_max: number): BodyWriter {
  const limit = Math.min(bytes_max, BYTES_MAX);
  const chunks: Uint8Array[] = [];
  let size = 0;
  return {
    write: async (chunk) => {
      size += chunk.length;
      if (size > limit)
        throw new RonError('payload_too_large', `an asset that must not be stored has more than ${limit} bytes`);
      chunks.push(chunk);
    },
    finish: async (media_type) => unstoredBody(Buffer.concat(chunks, size), media_type),
    abort: () => void chunks.splice(0),
  };
}

function unstoredBody(bytes: Uint8Array, media_type: string): StoredBody {
  const address = addressOf(bytes);
  const source = ramSource({ address, size: bytes.length, media_type }, bytes);
  return { address, size: bytes.length, source, isOnDisk: false, discard: () => undefined };
}
