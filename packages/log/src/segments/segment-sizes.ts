/** The sizes of the segment files of a log, without opening it. Bound: one file at a time. */
import { join } from 'node:path';
import type { FileSystem } from '../disk/file-system.ts';
import { fileNameOf, listSegments } from './segment-leftovers.ts';

export interface SegmentSize {
  readonly segment: number;
  /** Stays with the file even if the segment gets another number. */
  readonly salt: number;
  readonly bytes: number;
}

/** `dir`: the directory of the log. A file whose size cannot be read has `Infinity`. Rejects if the directory cannot be read. */
export async function segmentSizes(fs: FileSystem, dir: string): Promise<SegmentSize[]> {
  const segments = join(dir, 'segments');
  const sizes: SegmentSize[] = [];
  for (const { segment, salt, isMarked } of await listSegments(fs, segments)) {
    const path = join(segments, fileNameOf(segment, salt, isMarked ? 'dup' : 'seg'));
    sizes.push({ segment, salt, bytes: await sizeOf(fs, path).catch(() => Infinity) });
  }
  return sizes;
}

async function sizeOf(fs: FileSystem, path: string): Promise<number> {
  const file = await fs.open(path, 'read');
  try {
    return await file.size();
  } finally {
    await file.close();
  }
}
