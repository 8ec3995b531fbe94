/**
 * How far a log reaches: its segments and their durable bytes, in a file beside the directory of the log.
 *
 *     <data_dir>/spool.extent     number of segments, then for each its number, salt and durable bytes
 *
 * No record of a log shows that newer ones are missing. With this file, a start finds segments that were removed, cut, or
 * replaced by an older copy, even if all of the directory is an older one. A segment is recognized by its salt, which stays
 * with the file.
 *
 * Contract: the file never states bytes that are not durable, nor a segment that may be removed: `leave` syncs it before the
 * removal, and deletes the file if it cannot be written. So no crash and no failure of the disk looks like a loss. `note`
 * does not sync: it survives a kill, and a power failure may leave an older or a damaged file. A missing or damaged file
 * states nothing. Nothing is written before `begin`.
 * Bound: `SEGMENTS_MAX`, the newest ones; a waiting call for each caller.
 *
 *     const extent = await LogExtent.open(fs, path);
 *     const loss = extent.lossIn(await segmentSizes(fs, dir));
 *     const log = await openLog({ dir, fs, signal }, extent);
 *     await extent.begin();
 */
import { Mutex, NEVER } from '@ron/kernel';
import {
  MarkFile,
  readMark,
  SegmentLog,
  type FileSystem,
  type MarkFormat,
  type SegmentLogInit,
  type SegmentSize,
} from '@ron/log';

const SEGMENTS_MAX = 255;
const COUNT_BYTES = 8;
const ENTRY_BYTES = 16;
/** With the frame of a mark one page, which most disks write atomically. */
const FORMAT: MarkFormat = { magic: 'RONX', content_bytes: COUNT_BYTES + SEGMENTS_MAX * ENTRY_BYTES };
/** Numbers in a message. */
const NUMBERS_MAX = 8;

/** Opens a log, and has its extent follow it. Undefined: none is kept. */
export async function openLog(init: SegmentLogInit, extent: LogExtent | undefined): Promise<SegmentLog> {
  if (extent === undefined) return await SegmentLog.open(init);
  const log = await SegmentLog.open({ ...init, beforeRemove: (segment) => extent.leave(segment) });
  extent.follow(log);
  return log;
}

export class LogExtent {
  readonly #mark: MarkFile;
  /** As the file had it at the start. */
  readonly #kept: readonly SegmentSize[];
  readonly #writes = new Mutex('log.extent', { waiters_max: 16 });
  #log: SegmentLog | undefined;
  #isBegun = false;
  /** Segments that are being removed, or were. */
  readonly #leaving = new Set<number>();
  /** Undefined if the file may have another content. */
  #written: Buffer | undefined;

  private constructor(fs: FileSystem, path: string, kept: readonly SegmentSize[]) {
    this.#mark = new MarkFile(fs, path, FORMAT);
    this.#kept = kept;
  }

  static async open(fs: FileSystem, path: string): Promise<LogExtent> {
    const content = await readMark(fs, path, FORMAT).catch(() => undefined);
    return new LogExtent(fs, path, content === undefined ? [] : decode(content));
  }

  follow(log: SegmentLog): void {
    this.#log = log;
  }

  /** The segments of the opened log. */
  get found(): readonly SegmentSize[] | undefined {
    const files = this.#log?.files;
    return files?.numbers().map((segment) => {
      return { segment, salt: files.saltOf(segment), bytes: files.durableBytesOf(segment) };
    });
  }

  /** The part of the kept extent that is not among `found`; undefined if nothing is lost. */
  lossIn(found: readonly SegmentSize[]): string | undefined {
    const missing: number[] = [];
    const shorter: string[] = [];
    for (const { segment, salt, bytes } of this.#kept) {
      const sizes = found.filter((each) => each.salt === salt).map((each) => each.bytes);
      const found_bytes = Math.max(...sizes);
      if (sizes.length === 0) missing.push(segment);
      else if (found_bytes < bytes) shorter.push(`segment ${segment} has ${found_bytes} of ${bytes} bytes`);
    }
    const parts = missing.length === 0 ? [] : [`no segment ${listOf(missing)}`];
    if (shorter.length > 0) parts.push(listOf(shorter));
    return parts.length === 0 ? undefined : parts.join('; ');
  }

  /** From now on the file states the extent of the opened log. Rejects if it may state an earlier one. */
  async begin(): Promise<void> {
    if (this.#log === undefined) return;
    this.#isBegun = true;
    await this.#writes.run(NEVER, () => this.#overwrite());
  }

  /** Writes the extent if it has changed. */
  async note(): Promise<void> {
    if (!this.#isBegun) return;
    await this.#writes.run(NEVER, async () => {
      const content = this.#content();
      if (this.#written?.equals(content) === true) return;
      this.#written = undefined;
      // The log is complete without it; the next call tries again.
      await this.#mark.write(content).then(
        () => void (this.#written = content),
        () => undefined,
      );
    });
  }

  /** Called before a segment is removed. */
  async leave(segment: number): Promise<void> {
    if (!this.#isBegun) return;
    await this.#writes.run(NEVER, async () => {
      for (const each of this.#leaving) if (this.#log?.files.has(each) !== true) this.#leaving.delete(each);
      this.#leaving.add(segment);
      await this.#overwrite();
    });
  }

  /** After the log was closed. */
  async close(): Promise<void> {
    await this.note();
    await this.#mark.sync().catch(() => undefined);
    await this.#mark.close();
  }

  #content(): Buffer {
    const found = (this.found ?? []).filter(({ segment, bytes }) => bytes > 0 && !this.#leaving.has(segment));
    return encode(found.slice(-SEGMENTS_MAX));
  }

  /** Durably. If the file cannot be written, it is removed. */
  async #overwrite(): Promise<void> {
    const content = this.#content();
    this.#written = undefined;
    try {
      await this.#mark.write(content);
      await this.#mark.sync();
      this.#written = content;
    } catch {
      await this.#mark.remove();
    }
  }
}

function listOf(all: readonly (number | string)[]): string {
  const more = all.length - NUMBERS_MAX;
  return all.slice(0, NUMBERS_MAX).join(', ') + (more > 0 ? ` and ${more} more` : '');
}

function encode(segments: readonly SegmentSize[]): Buffer {
  const content = Buffer.alloc(FORMAT.content_bytes);
  content.writeUInt32LE(segments.length, 0);
  for (const [index, { segment, salt, bytes }] of segments.entries()) {
    const at = COUNT_BYTES + index * ENTRY_BYTES;
    content.writeUInt32LE(segment, at);
    content.writeUInt32LE(salt, at + 4);
    content.writeBigUInt64LE(BigInt(bytes), at + 8);
  }
  return content;
}

function decode(content: Buffer): SegmentSize[] {
  const count = Math.min(content.readUInt32LE(0), SEGMENTS_MAX);
  return Array.from({ length: count }, (_, index) => {
    const at = COUNT_BYTES + index * ENTRY_BYTES;
    return {
      segment: content.readUInt32LE(at),
      salt: content.readUInt32LE(at + 4),
      bytes: Number(content.readBigUInt64LE(at + 8)),
    };
  });
}
