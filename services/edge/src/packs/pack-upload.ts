/**
 * Receives the bytes of a pack into a temporary file.
 *
 * Contract: the file has all bytes of the body when `receiveUpload` resolves; on any error no file is left. The format is that of
 * the first bytes.
 * Bound: `bytes_max` bytes on disk, one chunk in memory. Overflow: `payload_too_large`; a full disk is `storage_full`.
 * Cancellation: by the body, which its source ends; each write has a deadline of its own.
 */
import { RonError, type Deadline } from '@ron/kernel';
import { rethrowDisk } from '@ron/log';
import type { PackFormat } from './pack.ts';
import type { PackDirectory, UploadFile } from './pack-directory.ts';

export interface ReceiveInit {
  readonly directory: PackDirectory;
  readonly name: string;
  readonly body: AsyncIterable<Uint8Array>;
  readonly bytes_max: number;
  /** A new deadline for one step on the disk. */
  readonly step: () => Deadline;
}

export interface Upload {
  readonly upload: UploadFile;
  readonly format: PackFormat;
}

const MAGIC: readonly (readonly [text: string, format: PackFormat])[] = [
  ['PMTiles', 'pmtiles'],
  ['SQLite format 3\0', 'mbtiles'],
];
const MAGIC_BYTES = 16;

export async function receiveUpload({ directory, name, body, bytes_max, step }: ReceiveInit): Promise<Upload> {
  const within = async <T>(work: Promise<T>): Promise<T> => {
    using due = step();
    return await due.within(work).catch(rethrowDisk);
  };
  const upload = await within(directory.createUpload(name));
  try {
    const head = new Uint8Array(MAGIC_BYTES);
    let size = 0;
    for await (const chunk of body) {
      if (size < MAGIC_BYTES) head.set(chunk.subarray(0, MAGIC_BYTES - size), size);
      if (size + chunk.length > bytes_max) throw tooLarge(bytes_max);
      await within(upload.file.write([chunk], size));
      size += chunk.length;
      if (size >= MAGIC_BYTES) formatOf(head);
    }
    return { upload, format: formatOf(head.subarray(0, size)) };
  } catch (error) {
    await directory.discard(upload).catch(() => undefined);
    throw error;
  }
}

/** Throws for bytes that are not a pack, before the rest is received. */
function formatOf(head: Uint8Array): PackFormat {
  const text = Buffer.from(head).toString('latin1');
  const found = MAGIC.find(([magic]) => text.startsWith(magic));
  if (found === undefined) throw new RonError('validation', 'it is neither a PMTiles nor an MBTiles file');
  return found[1];
}

function tooLarge(bytes_max: number): RonError {
  return new RonError('payload_too_large', `the pack is larger than packs.bytes_max (${bytes_max} bytes)`, {
    reason: 'body_cap',
  });
}
