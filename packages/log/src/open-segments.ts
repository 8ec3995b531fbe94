/**
 * Opens the segments of a log: what is in them is replayed, a torn tail is cut off, and the last one is gone on with.
 *
 * Promise: what was replayed survives the next crash. Damage in the middle is reported and skipped. On a read-only disk all
 * of it can still be read. Bound: as the scan says. Cancellation: by the signal.
 */
import { join } from 'node:path';
import { isGone, isReadOnly } from './disk-error.ts';
import { realFileSystem, type File, type FileSystem } from './file-system.ts';
import type { Position } from './record.ts';
import { scan, type ScanEnd } from './scan.ts';
import type { SegmentFiles } from './segment-files.ts';
import { fileNameOf, listSegments } from './segment-leftovers.ts';
import type { SegmentLogInit } from './segment-log.ts';
import { activeOf, type Active, type LogEnd } from './segment-writer.ts';

/** Whether the log in `dir` still holds what lies before `position`: a file may be gone, or have lost its end. */
export async function reaches(dir: string, position: Position, fs: FileSystem = realFileSystem): Promise<boolean> {
  if (position.offset === 0) return true;
  const segments = join(dir, 'segments');
  try {
    for (const { segment, salt, isMarked } of await listSegments(fs, segments)) {
      if (segment !== position.segment) continue;
      const file = await fs.open(join(segments, fileNameOf(segment, salt, isMarked ? 'dup' : 'seg')), 'read');
      try {
        if ((await file.size()) >= position.offset) return true;
      } finally {
        await file.close();
      }
    }
  } catch (error) {
    // A disk that fails otherwise has not lost the records: opening the log fails too, and is tried again.
    if (!isGone(error)) throw error;
  }
  return false;
}

/** Makes every segment known to `files` and replays what the caller does not know; where the log goes on. */
export async function openSegments(files: SegmentFiles, segment_bytes: number, init: SegmentLogInit): Promise<LogEnd> {
  const segments = await files.list(init.signal);
  const last = segments.at(-1);
  const replay = new Replay(files, init);
  for (const { segment, salt } of segments) {
    files.add(segment, salt, 0);
    if (segment === last?.segment) break;
    const file = await files.fs.open(files.path(segment), 'read');
    try {
      await replay.run(segment, file);
    } finally {
      await file.close();
    }
    // Left by a create that was late. The number of the last segment is kept, so that no number is used again.
    if (files.bytesOf(segment) === 0) await files.remove(segment).catch(() => undefined);
  }
  const opened = last && (await openLast(replay, last.segment, segment_bytes));
  const segment_last = Math.max(last?.segment ?? 0, init.from?.segment ?? 0);
  const position = opened?.end ?? init.from ?? { segment: segment_last, offset: 0 };
  return {
    active: opened?.active,
    failure: opened?.failure,
    segment_last,
    durable: { position, seq: replay.seq },
  };
}

interface LastOpened extends Pick<LogEnd, 'active' | 'failure'> {
  /** Undefined if the caller knows all records of the segment. */
  readonly end: Position | undefined;
}

/** The last segment is opened to go on with it, unless the disk is read-only or it is as long as it may be. */
async function openLast(replay: Replay, segment: number, segment_bytes: number): Promise<LastOpened> {
  const { files } = replay;
  const opened = await openToWrite(files, segment);
  let active: Active | undefined;
  try {
    const end = await replay.run(segment, opened.file);
    if (end !== undefined && opened.failure === undefined) {
      if (end.torn_bytes > 0) await replay.cut(segment, opened.file, end.tail);
      if (end.tail < segment_bytes) active = await activeOf(segment, opened.file, end.tail);
    }
    return { active, failure: opened.failure, end: end && { segment, offset: end.tail } };
  } finally {
    if (active === undefined) await opened.file.close();
  }
}

/** To read at least: then `failure` says why it cannot be written. */
async function openToWrite(files: SegmentFiles, segment: number): Promise<{ file: File; failure?: unknown }> {
  const path = files.path(segment);
  try {
    return { file: await files.fs.open(path, 'write') };
  } catch (failure) {
    if (!isReadOnly(failure)) throw failure;
    return { file: await files.fs.open(path, 'read'), failure };
  }
}

class Replay {
  /** The largest number of a record. */
  seq: number;
  readonly files: SegmentFiles;
  readonly #init: SegmentLogInit;

  constructor(files: SegmentFiles, init: SegmentLogInit) {
    this.files = files;
    this.#init = init;
    this.seq = init.seq_known ?? 0;
  }

  /** Replays what is new in a segment; undefined when all of it is known. */
  async run(segment: number, file: File): Promise<ScanEnd | undefined> {
    const { from, onRecord, onDamage, signal } = this.#init;
    const size = await file.size();
    this.#hold(segment, size);
    if (segment < (from?.segment ?? 0)) return undefined;
    // First: what was written but not synced before the crash is acknowledged by being replayed, so the next crash must
    // not take it.
    await file.sync();
    const end = await scan({
      file,
      from: segment === from?.segment ? from.offset : 0,
      salt: this.files.saltOf(segment),
      onRecord: (head, offset, body) => {
        this.seq = Math.max(this.seq, head.seq);
        return onRecord?.(head, { segment, offset }, body);
      },
      onGap: (offset, bytes) => onDamage?.({ segment, offset, bytes, what: 'gap' }),
      signal,
    });
    if (end.torn_bytes > 0) onDamage?.({ segment, offset: end.tail, bytes: end.torn_bytes, what: 'torn tail' });
    return end;
  }

  async cut(segment: number, file: File, tail: number): Promise<void> {
    await file.truncate(tail);
    await file.sync();
    this.#hold(segment, tail);
  }

  #hold(segment: number, bytes: number): void {
    this.files.setBytes(segment, bytes);
    this.files.setDurableBytes(segment, bytes);
  }
}
