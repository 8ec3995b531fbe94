/**
 * A file as a replayable request body.
 *
 * Contract: a chunk is valid until the next one is requested. Bound: one buffer for each reader.
 */
import type { FileHandle } from 'node:fs/promises';
import type { ReplayableBody } from '@ron/client';

const READ_BYTES = 1024 * 1024;

export function fileBody(file: FileHandle, size: number): ReplayableBody {
  return { size, read: (start) => chunks(file, start) };
}

async function* chunks(file: FileHandle, start: number): AsyncGenerator<Uint8Array, void, void> {
  const buffer = Buffer.allocUnsafeSlow(READ_BYTES);
  for (let at = start; ;) {
    const { bytesRead } = await file.read(buffer, 0, buffer.length, at);
    if (bytesRead === 0) return;
    yield buffer.subarray(0, bytesRead);
    at += bytesRead;
  }
}
