/**
 * Opens the segments of a log: replays their records, cuts off a torn tail, and continues with the last segment.
 *
 * Contract: replayed records survive the next crash. Damage in the middle is reported and skipped. All records on a read-only
 * disk can be read. Bound: as in scan.ts. Cancellation: by the signal.
 */
import { join } from 'node:path';
import { isGone, isReadOnly } from '../disk/disk-error.ts';
import { realFileSystem, type File, type FileSystem } from '../disk/file-system.ts';
import type { Position } from './record.ts';
import { scan, type ScanEnd } from './scan.ts';
import type { SegmentFiles } from './segment-files.ts';
import { fileNameOf, listSegments } from './segment-leftovers.ts';
import type { SegmentLogInit } from './segment-log.ts';
import { activeOf, type Active, type LogEnd } from './segment-writer.ts';

/** Whether the log in `dir` still has every byte before `position`: a file may be deleted or truncated. */
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
    // Any other disk failure does not mean that records are lost: opening the log fails too, and is retried.
    if (!isGone(error)) throw error;
  }
  return false;
}

/** Registers every segment with `files`, replays records that the caller does not know, and returns the end of the log. */
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
    // Left by a late create. The last segment keeps its number, so that no number is reused.
    if (files.bytesOf(segment) === 0) await files.remove(segment).catch(() => undefined);
  }
  const opened = last && (await openLast(replay, last.segment, segment_bytes));
  const segment_last = Math.max(last?.segment ?? 0, init.from?.segment ?? 0);
  const position = opened?.end ?? init.from ?? { segment: segment_last, offset: 0 };
  return {
    active: opened?.active,
    failure: opened?.failure,
    segment_last,
    durable: { position, seq: replay.seqAtEnd() },
  };
}

interface LastOpened extends Pick<LogEnd, 'active' | 'failure'> {
  /** Undefined if the caller knows all records of the segment. */
  readonly end: Position | undefined;
}

/** Opens the last segment for writing, unless the disk is read-only or the segment is full. */
async function openLast(replay: Replay, segment: number, segment_bytes: number): Promise<LastOpened> {
  const { files } = replay;
  const opened = await openToWrite(files, segment);
  let active: Active | undefined;
  try {
    const end = await replay.run(segment, opened.file);
    if (end !== undefined && opened.failure === undefined && !end.isTailUnreadable) {
      if (end.torn_bytes > 0) await replay.cut(segment, opened.file, end.tail);
      if (end.tail < segment_bytes) active = await activeOf(segment, opened.file, end.tail);
    }
    return { active, failure: opened.failure, end: end && { segment, offset: end.tail } };
  } finally {
    if (active === undefined) await opened.file.close();
  }
}

/** Opens a segment for reading if it cannot be written; `failure` is the reason. */
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
  #hasUnread = false;
  readonly files: SegmentFiles;
  readonly #init: SegmentLogInit;

  constructor(files: SegmentFiles, init: SegmentLogInit) {
    this.files = files;
    this.#init = init;
    this.seq = init.seq_known ?? 0;
  }

  /** Replays the new records of a segment; undefined when the caller knows all of them. */
  async run(segment: number, file: File): Promise<ScanEnd | undefined> {
    const { from, onRecord, onDamage, onBadBody, skipsUnreadable, signal } = this.#init;
    const size = await file.size();
    this.#hold(segment, size);
    if (segment < (from?.segment ?? 0)) return undefined;
    // First: replaying acknowledges records that were written but not synced before the crash, so the next crash must
    // not lose them.
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
      onBadBody: (head, offset, body) => {
        const isKept = onBadBody?.(head, { segment, offset }, body) === true;
        if (isKept) this.seq = Math.max(this.seq, head.seq);
        return isKept;
      },
      onUnreadable:
        skipsUnreadable === true
          ? (offset, bytes) => {
              this.#hasUnread = true;
              onDamage?.({ segment, offset, bytes, what: 'unreadable part' });
            }
          : undefined,
      signal,
    });
    if (end.torn_bytes > 0) onDamage?.({ segment, offset: end.tail, bytes: end.torn_bytes, what: 'torn tail' });
    return end;
  }

  /** The number before that of the next record. */
  seqAtEnd(): number {
    const { seqAfterUnreadable } = this.#init;
    return this.#hasUnread ? Math.max(this.seq, seqAfterUnreadable?.(this.seq) ?? 0) : this.seq;
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
