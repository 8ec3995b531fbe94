/**
 * What is known about one upload, so that it can go on after a restart: a file of frames that only grows.
 *
 *     frame: | crc u32 | length u32 | type u8 | payload |      the crc is over the rest of the frame
 *
 * Promise: `append` and `replace` resolve when what they wrote is durable. A frame is there as a whole or not at all: what
 * follows the first frame that does not check is cut off. After a failed write or sync the file is never used again: the
 * next call writes a new one in its place.
 * Bound: `replace` is asked for when the file has grown to twice what it says, so it stays below `SLACK_BYTES` and twice
 * the state of an upload. Cancellation: none; calls end by themselves.
 */
import { basename, join } from 'node:path';
import { crc32 } from 'node:zlib';
import type { FileSystem } from '@ron/log';

const HEADER_BYTES = 9;
const SLACK_BYTES = 1024 * 1024;

/** The numbers are on disk: they never change and are never used again. */
export const FrameType = { created: 1, progress: 2, finished: 3, size: 4 } as const;

export interface Frame {
  readonly type: number;
  readonly payload: Uint8Array;
}

export interface UploadJournal {
  /** It has grown well beyond what a new one would need. */
  isWasteful(state_bytes: number): boolean;
  /** `whole` gives the frames of a new journal that says the same, for a place that has none yet. */
  append(frame: Frame, whole: () => readonly Frame[]): Promise<void>;
  /** Writes a new journal in place of the old one. */
  replace(frames: readonly Frame[]): Promise<void>;
  remove(): Promise<void>;
  /** The copy in a directory, when it is one that counts. */
  copyIn?(dir: string): FileJournal | undefined;
}

/** For uploads that need not survive. */
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

/** The frames at the beginning of `bytes` that check, and where they end. */
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

/** What a former process left. */
export interface LoadedJournal {
  readonly journal: FileJournal;
  readonly frames: Frame[];
  /** Not even one frame is complete: the upload was never acknowledged. */
  readonly isEmpty: boolean;
  /** A frame that does not check has a good one behind it: no torn end, but damage. */
  readonly isDamaged: boolean;
  /** Where the frames that check end, and how long the file is. */
  readonly end_bytes: number;
  readonly bytes: number;
}

/** Whether a frame that checks follows the one at `at`, which does not. */
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
  /** The file is missing, or must not be used any more. */
  #isBroken: boolean;

  private constructor(fs: FileSystem, dir: string, name: string, bytes: number, isBroken: boolean) {
    this.#fs = fs;
    this.#dir = dir;
    this.#path = join(dir, name);
    this.#bytes = bytes;
    this.#isBroken = isBroken;
  }

  /** A journal that is written by its first `replace`. */
  static fresh(fs: FileSystem, dir: string, name: string): FileJournal {
    return new FileJournal(fs, dir, name, 0, true);
  }

  /** Reads a journal that a former process left. */
  static async load(fs: FileSystem, dir: string, name: string): Promise<LoadedJournal> {
    const file = await fs.open(join(dir, name), 'read');
    try {
      const bytes = Buffer.alloc(await file.size());
      const count = await file.read(bytes, bytes.length, 0);
      const { frames, end } = decodeFrames(bytes.subarray(0, count));
      // A torn end is not written over: the next call makes a new file.
      const journal = new FileJournal(fs, dir, name, end, end < count);
      const isDamaged = isFollowed(bytes.subarray(0, count), end);
      return { journal, frames, isEmpty: count <= HEADER_BYTES, isDamaged, end_bytes: end, bytes: count };
    } finally {
      await file.close();
    }
  }

  /** How many bytes of the file are durable frames; undefined while it is written anew, or has to be. */
  get durable_bytes(): number | undefined {
    return this.#isBroken ? undefined : this.#bytes;
  }

  /** The file turned out damaged: the next write makes a new one. */
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
    // One that could not be finished may be left from before.
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

  /** Takes the file to another directory, as it is. */
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
