/**
 * An append-only log in segment files.
 *
 * Contract: a record that a durable `append` acknowledged survives any crash, byte for byte, or is reported as damaged. A
 * record that was appended with `durable: false` is as safe once `onDurable` has reported it; before that a crash or a
 * failed sync may lose it. A record that was not acknowledged may survive or not, but never in part. A torn tail is cut at
 * open; damage in the middle is reported and skipped. A segment whose write or sync failed is retired: its descriptor is
 * never used again, and its bytes that are not durable are cut off.
 * Bound: segments of `segment_bytes`; appends as in GroupCommit; 64 MiB or 4096 records wait for a sync, then the log
 * syncs by itself. Overflow: `busy`. A full disk is `storage_full`, any other disk failure `not_ready`; for a while after
 * a failure appends are refused at once, so that a broken disk does not fill up with new segments.
 * Cancellation: as in GroupCommit.
 */
import { join } from 'node:path';
import { assert, RonError } from '@ron/kernel';
import { realFileSystem, type FileSystem } from '../disk/file-system.ts';
import { GroupCommit } from './group-commit.ts';
import { iterate, type IteratedRecord } from './iterate.ts';
import { openSegments, reaches } from './open-segments.ts';
import { SHARED } from '../disk/read-now.ts';
import {
  HEADER_BYTES,
  ID_BYTES,
  META_BYTES_MAX,
  recordBytes,
  recordIn,
  type Appended,
  type DurableEnd,
  type DurableRecord,
  type LogRecord,
  type Position,
  type ReadInit,
  type RecordHead,
  type RecordInput,
} from './record.ts';
import { scan, type ScanEnd } from './scan.ts';
import { SegmentFiles } from './segment-files.ts';
import { SegmentWriter, type Group, type LogEnd, type SegmentWriterInit } from './segment-writer.ts';

export interface Damage extends Position {
  readonly bytes: number;
  readonly what: 'gap' | 'torn tail' | 'unreadable part';
}

export interface SegmentLogInit {
  /** The directory of the log; its segments are in the subdirectory `segments/`. */
  dir: string;
  /** Default: the real one. */
  fs?: FileSystem;
  /** A segment is closed when it would grow beyond this. Default 256 MiB. */
  segment_bytes?: number;
  /** Default 8 MiB. */
  batch_bytes_max?: number;
  /**
   * Records, or parts of records (`AppendInit.count`), that are encoded, written and reported together, which bounds a turn
   * of the event loop. Default: no limit.
   */
  batch_records_max?: number;
  /** Default 64 MiB. */
  queue_bytes_max?: number;
  /** Records before this place are known to the caller and are not replayed. Default: from the beginning. */
  from?: Position;
  /** At least as large as the `seq` of every record before `from`. Default 0. */
  seq_known?: number;
  /**
   * Called at open for each record from `from` on, in order. When it returns a promise, the log waits for it. `body` is
   * the payload and then the meta, valid during the call.
   */
  onRecord?: (head: RecordHead, position: Position, body: Buffer) => void | Promise<void>;
  onDamage?: (damage: Damage) => void;
  /**
   * Bytes that cannot be read (EIO) are damage: reported as `unreadable part`, and the scan goes on. Default: the open
   * rejects. An unreadable end of the last segment is not cut off, because it may hold records; a new segment begins.
   */
  skipsUnreadable?: boolean;
  /**
   * Called at the end of an open that skipped an unreadable part, with the largest number that was read. Returns the number after
   * which new records are numbered, so that they come after those of the part. Default: the largest that was read.
   */
  seqAfterUnreadable?: (seq: number) => number;
  /** Called at open as in scan.ts: true keeps a record with a damaged body even at the end of the log. */
  onBadBody?: (head: RecordHead, position: Position, body: Buffer) => boolean | void;
  /**
   * Returns the records to write first in a new segment: a summary of the segments before it, which may be removed.
   * `onDurable` has reported all of their records. They are synced before any other record is written to the segment, so
   * no crash leaves a segment without them. Called again if the write fails, or a crash left an empty segment.
   */
  firstRecords?: () => readonly RecordInput[];
  /**
   * Called for each appended group of records once it is durable, in log order, in the same synchronous step in which
   * `durable` advances past it and before its append resolves. Must not throw.
   */
  onDurable?: (records: readonly DurableRecord[], places: readonly Appended[]) => void;
  /** Called before a segment is removed by `remove` or `truncateBefore`. If it rejects, the segment stays. */
  beforeRemove?: (segment: number) => Promise<void>;
  signal: AbortSignal;
}

export interface AppendInit {
  /**
   * Resolve only when the records are durable. Default true. With false the append resolves when they are written. The
   * next durable append or `sync` makes them durable, and `onDurable` reports them then.
   */
  durable?: boolean;
  /** How much of `batch_records_max` the append uses: more than its records if each has many entries. Default: its records. */
  count?: number;
}

/** A part of a segment, from the end of a record to the end of another. Default: the whole segment. */
export interface SegmentPart {
  from?: number;
  until?: number;
  /** As in scan.ts. */
  onBadBody?: (head: RecordHead, offset: number, body: Buffer) => boolean | void;
  /** As in `SegmentLogInit`. */
  skipsUnreadable?: boolean;
}

const MIB = 1024 * 1024;

export class SegmentLog implements AsyncDisposable {
  /** Whether the log in a directory still has every byte before a position. */
  static readonly reaches = reaches;

  readonly files: SegmentFiles;
  readonly #segment_bytes: number;
  readonly #writer: SegmentWriter;
  readonly #commits: GroupCommit<Group, readonly Appended[]>;
  readonly #beforeRemove: SegmentLogInit['beforeRemove'];

  private constructor(init: SegmentLogInit, writer: SegmentWriterInit, end: LogEnd) {
    this.files = writer.files;
    this.#segment_bytes = writer.segment_bytes;
    this.#writer = new SegmentWriter(writer, end);
    this.#beforeRemove = init.beforeRemove;
    this.#commits = new GroupCommit({
      name: 'log',
      queue_bytes_max: init.queue_bytes_max ?? 64 * MIB,
      batch_bytes_max: init.batch_bytes_max ?? 8 * MIB,
      batch_count_max: init.batch_records_max,
      countOf: ({ count }) => count,
      commit: (batch, answer) => this.#writer.commit(batch, answer),
    });
  }

  static async open(init: SegmentLogInit): Promise<SegmentLog> {
    const { fs = realFileSystem, segment_bytes = 256 * MIB, onDurable, firstRecords } = init;
    const files = new SegmentFiles(fs, join(init.dir, 'segments'));
    await files.openDir();
    const end = await openSegments(files, segment_bytes, init);
    return new SegmentLog(init, { files, segment_bytes, onDurable, firstRecords }, end);
  }

  /** The segment that is being written, if any. */
  get active(): number | undefined {
    return this.#writer.active;
  }

  /** The end of the durable part: `onDurable` has reported exactly the records before it. Valid as `from` at an open. */
  get durable(): DurableEnd {
    return this.#writer.durable;
  }

  /** The error with which appends are refused for a while after a failure, and after a start on a read-only disk. */
  get refusal(): RonError | undefined {
    return this.#writer.refusal;
  }

  get stats(): { batches_total: number; entries_total: number; waiting_bytes: number } {
    const { batches_total, entries_total, waiting_bytes } = this.#commits;
    return { batches_total, entries_total, waiting_bytes };
  }

  /**
   * Appends a group of records atomically; resolves when they are durable, or with `durable: false` when they are written.
   */
  append(records: readonly RecordInput[], signal: AbortSignal, init: AppendInit = {}): Promise<readonly Appended[]> {
    let bytes = 0;
    for (const record of records) {
      assert(record.id.length <= ID_BYTES, 'a record id has at most 32 bytes');
      assert(record.type >= 1 && record.type <= 255, 'a record type is 1 to 255');
      assert((record.meta?.length ?? 0) <= META_BYTES_MAX, 'meta is at most 65535 bytes');
      bytes += recordBytes(record.payload.length, record.meta?.length ?? 0);
    }
    if (bytes > this.#segment_bytes) {
      return Promise.reject(
        new RonError('payload_too_large', `${bytes} bytes do not fit a segment of ${this.#segment_bytes}`),
      );
    }
    const { refusal } = this;
    if (refusal !== undefined) return Promise.reject(refusal);
    const { durable = true, count = records.length } = init;
    return this.#commits.append({ records, bytes, durable, count }, bytes, signal);
  }

  /** Makes earlier appends durable. Records that an earlier failed sync has lost stay lost. */
  async sync(signal: AbortSignal): Promise<void> {
    await this.#commits.append({ records: [], bytes: 0, durable: true, count: 0 }, 0, signal);
  }

  /** The record at a position, verified; undefined if there is none, or it is damaged. */
  async read(
    position: Position,
    payload_bytes: number,
    meta_bytes: number,
    init?: ReadInit,
  ): Promise<LogRecord | undefined> {
    // Not from Node's buffer pool: a caller that keeps a small record would keep the pool alive.
    const bytes = Buffer.allocUnsafeSlow(HEADER_BYTES + payload_bytes + meta_bytes);
    const salt = this.files.saltOf(position.segment);
    const count = await this.files.read(position.segment, bytes, bytes.length, position.offset);
    return count < bytes.length ? undefined : recordIn(bytes, salt, payload_bytes, meta_bytes, init);
  }

  /** As `read`, without waiting for a disk; undefined as well if the record is not in memory. */
  readNow(position: Position, payload_bytes: number, meta_bytes: number, init?: ReadInit): LogRecord | undefined {
    const into = Buffer.allocUnsafeSlow(HEADER_BYTES + payload_bytes + meta_bytes);
    return this.#readNow(position, into, payload_bytes, meta_bytes, init);
  }

  /** As `readNow`, but its bytes are valid only until the next call, on any log. */
  peekNow(position: Position, payload_bytes: number, meta_bytes: number, init?: ReadInit): LogRecord | undefined {
    const fits = HEADER_BYTES + payload_bytes + meta_bytes <= SHARED.length;
    if (!fits) return this.readNow(position, payload_bytes, meta_bytes, init);
    return this.#readNow(position, SHARED, payload_bytes, meta_bytes, init);
  }

  #readNow(
    { segment, offset }: Position,
    into: Buffer,
    payload_bytes: number,
    meta_bytes: number,
    init?: ReadInit,
  ): LogRecord | undefined {
    const length = HEADER_BYTES + payload_bytes + meta_bytes;
    if (this.files.readNow(segment, into, length, offset) !== length) return undefined;
    return recordIn(into.subarray(0, length), this.files.saltOf(segment), payload_bytes, meta_bytes, init);
  }

  /**
   * Reports every record of a segment, or of a part of it: for scrub, compaction and rebuilding an index. `body` is the
   * payload and then the meta, valid during the call; when `onRecord` returns a promise, the scan waits for it.
   */
  async scanSegment(
    segment: number,
    onRecord: (head: RecordHead, position: Position, body: Buffer) => void | Promise<void>,
    onDamage: (damage: Damage) => void,
    signal: AbortSignal,
    part: SegmentPart = {},
  ): Promise<ScanEnd> {
    using lease = this.files.lease(segment);
    const file = await this.files.fs.open(this.files.path(segment), 'read');
    assert(lease !== undefined, 'held while the segment is read');
    try {
      const end = await scan({
        file,
        from: part.from ?? 0,
        until: part.until,
        salt: this.files.saltOf(segment),
        onRecord: (head, offset, body) => onRecord(head, { segment, offset }, body),
        onGap: (offset, bytes) => onDamage({ segment, offset, bytes, what: 'gap' }),
        onBadBody: part.onBadBody,
        onUnreadable:
          part.skipsUnreadable === true
            ? (offset, bytes) => onDamage({ segment, offset, bytes, what: 'unreadable part' })
            : undefined,
        signal,
      });
      // Bytes after the tail of the active segment are a write in progress, not damage.
      const isActive = segment === this.active;
      if (end.torn_bytes > 0 && !isActive) {
        onDamage({ segment, offset: end.tail, bytes: end.torn_bytes, what: 'torn tail' });
      }
      return end;
    } finally {
      await file.close();
    }
  }

  /**
   * The durable records from a position on, verified, in log order; ends at the end of the durable part. `from` is the
   * beginning or the end of a record, or of the log.
   */
  iterate(
    from: Position,
    signal: AbortSignal,
    onDamage: (damage: Damage) => void = () => undefined,
  ): AsyncGenerator<IteratedRecord, void, void> {
    return iterate(this, from, onDamage, signal);
  }

  /**
   * Removes the segments that end before a position, oldest first, each durably: a crash leaves a log that begins later.
   * The last segment with records stays, so that record numbers continue after a restart.
   */
  async truncateBefore(position: Position, signal: AbortSignal): Promise<void> {
    const numbers = this.files.numbers();
    const last = numbers.findLast((segment) => this.files.durableBytesOf(segment) > 0) ?? numbers.at(-1) ?? 0;
    for (const segment of numbers) {
      if (segment >= Math.min(position.segment, last) || segment === this.active) return;
      signal.throwIfAborted();
      await this.#remove(segment);
    }
  }

  /** Lets the next append begin a new segment, so that the one being written can be compacted after it. */
  rotate(): void {
    this.#writer.rotate();
  }

  /** Removes a segment once its last lease is released. Durable when it resolves. */
  async remove(segment: number): Promise<void> {
    assert(segment !== this.active, 'a segment that is being written is not removed');
    await this.#remove(segment);
  }

  async #remove(segment: number): Promise<void> {
    // Without it the segment is unknown in the same step.
    if (this.#beforeRemove !== undefined) await this.#beforeRemove(segment);
    await this.files.remove(segment);
  }

  /** Commits the waiting appends, then closes the files. */
  async close(): Promise<void> {
    await this.#commits.close();
    // Appends that waited for a sync have been answered: a failure here loses no acknowledged record.
    await this.#writer.seal().catch(() => undefined);
    await this.files.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}
