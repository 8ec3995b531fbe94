/**
 * The journal of one upload: an append-only file of frames from which the upload is restored after a restart.
 *
 *     frame: | crc u32 | length u32 | type u8 | payload |      the crc is over the rest of the frame
 *
 * Contract: `append` and `replace` resolve when their frames are durable. A frame is valid as a whole or not at all: bytes
 * after the first invalid frame are ignored. After a failed write or sync the file is never used again: the next call writes
 * a new file in its place.
 * Bound: callers `replace` a journal that `isWasteful`, so a file stays below `SLACK_BYTES` and twice the
 * state of an upload.
 */
import { basename, join } from 'node:path';
import { crc32 } from 'node:zlib';
import type { FileSystem } from '@ron/log';

const HEADER_BYTES = 9;
const SLACK_BYTES = 1024 * 1024;

/** The numbers are on disk: they never change and are never reused. */
export const FrameType = { created: 1, progress: 2, finished: 3, size: 4 } as const;

export interface Frame {
  readonly type: number;
  readonly payload: Uint8Array;
}

export interface UploadJournal {
  /** The file is much larger than a new one would be. */
  isWasteful(state_bytes: number): boolean;
  /** `whole` returns all frames of an equivalent new journal, for a place that has none yet. */
  append(frame: Frame, whole: () => readonly Frame[]): Promise<void>;
  /** Replaces the journal by a new one. */
  replace(frames: readonly Frame[]): Promise<void>;
  remove(): Promise<void>;
  /** The current copy in a directory. */
  copyIn?(dir: string): FileJournal | undefined;
}

/** For uploads that need not survive a restart. */
export const NO_JOURNAL: UploadJournal = {
  isWasteful: () => false,
  append: () => Promise.resolve(),
  replace: () => Promise.resolve(),
  remove: () => Promise.resolve(),
};

function encodeFrame({ type, payload }: Frame): Buffer {
  const bytes = Buffer.allocUnsafe(HEADER_BYTES + payload.length);
  bytes.writeUInt32LE(payload.length, 4);
  bytes.writeUInt8(type, 8);
  bytes.set(payload, HEADER_BYTES);
  bytes.writeUInt32LE(crc32(bytes.subarray(4)), 0);
  return bytes;
}

/** The valid frames at the beginning of `bytes`, and where they end. */
export function decodeFrames(bytes: Buffer): { frames: Frame[]; end: number } {
  const frames: Frame[] = [];
  let at = 0;
  while (at + HEADER_BYTES <= bytes.length) {
    const end = at + HEADER_BYTES + bytes.readUInt32LE(at + 4);
    if (end > bytes.length || crc32(bytes.subarray(at + 4, end)) !== bytes.readUInt32LE(at)) break;
    frames.push({ type: bytes.readUInt8(at + 8), payload: bytes.subarray(at + HEADER_BYTES, end) });
    at = end;
  }
  return { frames, end: at };
}

/** A journal that an earlier process left. */
export interface LoadedJournal {
  readonly journal: FileJournal;
  readonly frames: Frame[];
  /** Not even one frame is complete: the upload was never acknowledged. */
  readonly isEmpty: boolean;
  /** A valid frame follows an invalid one: damage, not a torn end. */
  readonly isDamaged: boolean;
  /** Where the valid frames end, and the length of the file. */
  readonly end_bytes: number;
  readonly bytes: number;
}

/** Whether a valid frame follows the invalid one at `at`. */
function isFollowed(bytes: Buffer, at: number): boolean {
  if (at + HEADER_BYTES > bytes.length) return false;
  const next = at + HEADER_BYTES + bytes.readUInt32LE(at + 4);
  return next < bytes.length && decodeFrames(bytes.subarray(next)).frames.length > 0;
}

export class FileJournal implements UploadJournal {
  readonly #fs: FileSystem;
  readonly #dir: string;
  readonly #path: string;
  #bytes: number;
  /** The file is missing or must not be used again. */
  #isBroken: boolean;

  private constructor(fs: FileSystem, dir: string, name: string, bytes: number, isBroken: boolean) {
    this.#fs = fs;
    this.#dir = dir;
    this.#path = join(dir, name);
    this.#bytes = bytes;
    this.#isBroken = isBroken;
  }

  /** A new journal; its first `replace` writes it. */
  static fresh(fs: FileSystem, dir: string, name: string): FileJournal {
    return new FileJournal(fs, dir, name, 0, true);
  }

  /** Reads a journal that an earlier process left. */
  static async load(fs: FileSystem, dir: string, name: string): Promise<LoadedJournal> {
    const file = await fs.open(join(dir, name), 'read');
    try {
      const bytes = Buffer.alloc(await file.size());
      const count = await file.read(bytes, bytes.length, 0);
      const { frames, end } = decodeFrames(bytes.subarray(0, count));
      // A torn end is not overwritten: the next call makes a new file.
      const journal = new FileJournal(fs, dir, name, end, end < count);
      const isDamaged = isFollowed(bytes.subarray(0, count), end);
      return { journal, frames, isEmpty: count <= HEADER_BYTES, isDamaged, end_bytes: end, bytes: count };
    } finally {
      await file.close();
    }
  }

  /** The length of the durable frames; undefined while the file is being replaced, or has to be. */
  get durable_bytes(): number | undefined {
    return this.#isBroken ? undefined : this.#bytes;
  }

  /** The file was found damaged: the next write replaces it. */
  markBroken(): void {
    this.#isBroken = true;
  }

  isWasteful(state_bytes: number): boolean {
    return this.#isBroken || this.#bytes > 2 * state_bytes + SLACK_BYTES;
  }

  async append(frame: Frame): Promise<void> {
    const bytes = encodeFrame(frame);
    const file = await this.#fs.open(this.#path, 'write');
    try {
      this.#isBroken = true;
      await file.write([bytes], this.#bytes);
      await file.sync();
      this.#isBroken = false;
      this.#bytes += bytes.length;
    } finally {
      await file.close();
    }
  }

  async replace(frames: readonly Frame[]): Promise<void> {
    const next = `${this.#path}.new`;
    // An unfinished file of an earlier attempt may exist.
    await this.#fs.remove(next).catch(() => undefined);
    const buffers = frames.map(encodeFrame);
    const file = await this.#fs.create(next);
    try {
      await file.write(buffers, 0);
      await file.sync();
    } finally {
      await file.close();
    }
    await this.#fs.rename(next, this.#path);
    this.#isBroken = true;
    await this.#fs.syncDir(this.#dir);
    this.#isBroken = false;
    this.#bytes = buffers.reduce((sum, each) => sum + each.length, 0);
  }

  /** Moves the file to another directory unchanged. */
  async moveTo(dir: string): Promise<void> {
    await this.#fs.makeDir(dir);
    await this.#fs.rename(this.#path, join(dir, `upload-${basename(this.#path)}`));
    await this.#fs.syncDir(dir);
    await this.#fs.syncDir(this.#dir);
  }

  async remove(): Promise<void> {
    await this.#fs.remove(this.#path).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== 'ENOENT') throw error;
    });
    await this.#fs.syncDir(this.#dir);
  }
}
