/**
 * An append-only log in segment files.
 *
 * Promise: what a durable `append` acknowledged is there after any crash, byte for byte, or is reported as damaged. What
 * was appended with `durable: false` is as safe once `isDurable` says so; until then a crash or a failed sync may take it.
 * A record that was not acknowledged may be there or not, but never in part. A torn tail is cut at open; damage in the
 * middle is reported and skipped. A segment whose write or sync failed is retired: its descriptor is never used again, and
 * what was not durable in it is cut off.
 * Bound: segments of `segment_bytes`, appends as GroupCommit says. Overflow: `busy`. A full disk is `storage_full`, a disk
 * that fails otherwise `not_ready`; for a while after a failure appends are refused at once, so that a broken disk does
 * not fill up with new segments.
 * Cancellation: as GroupCommit says.
 */
import { join } from 'node:path';
import { assert, RonError, sched } from '@ron/kernel';
import { BatchWrite } from './batch-write.ts';
import { diskError, isFull, isReadOnly } from './disk-error.ts';
import { realFileSystem, type File, type FileSystem } from './file-system.ts';
import { GroupCommit } from './group-commit.ts';
import {
  HEADER_BYTES,
  ID_BYTES,
  META_BYTES_MAX,
  recordBytes,
  recordIn,
  type Appended,
  type LogRecord,
  type Position,
  type RecordHead,
  type RecordInput,
} from './record.ts';
import { scan } from './scan.ts';
import { SegmentFiles } from './segment-files.ts';

export interface Damage extends Position {
  readonly bytes: number;
  readonly what: 'gap' | 'torn tail';
}

export interface SegmentLogInit {
  /** The log's directory; its segments lie in `segments/` below it. */
  dir: string;
  /** Default: the real one. */
  fs?: FileSystem;
  /** A segment is closed when it would grow beyond this. Default 256 MiB. */
  segment_bytes?: number;
  /** Default 8 MiB. */
  batch_bytes_max?: number;
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
  /** Called when what lies in a segment from an offset on is gone: its write or sync failed, and nobody was promised it. */
  onCut?: (position: Position) => void;
  /** Called when records have been appended, before their appends resolve: `tail` and this never disagree. */
  onAppended?: (records: readonly RecordInput[], places: readonly Appended[]) => void;
  signal: AbortSignal;
}

export interface AppendInit {
  /**
   * Resolve only when the records are durable. Default true. With false it resolves when they are written; what makes
   * them durable is the next durable append or `sync`, and `isDurable` tells whether it did.
   */
  durable?: boolean;
}

interface Group {
  readonly records: readonly RecordInput[];
  readonly bytes: number;
  readonly durable: boolean;
}

const MIB = 1024 * 1024;
const RETRY_AFTER_FAILURE_MS_MIN = 100;
const RETRY_AFTER_FAILURE_MS_MAX = 5000;

/** The segment that is being written. */
interface Active {
  readonly segment: number;
  readonly file: File;
  /** Where the next record goes. */
  tail: number;
}

export class SegmentLog implements AsyncDisposable {
  readonly files: SegmentFiles;
  readonly #segment_bytes: number;
  readonly #onAppended: SegmentLogInit['onAppended'];
  readonly #onCut: SegmentLogInit['onCut'];
  readonly #commits: GroupCommit<Group, readonly Appended[]>;
  #active: Active | undefined;
  #rotateNext = false;
  #segment_last = 0;
  #seq = 0;
  #failures = 0;
  #refuse_until_ms = 0;
  #refusal: RonError | undefined;

  private constructor(init: SegmentLogInit) {
    this.#segment_bytes = init.segment_bytes ?? 256 * MIB;
    this.#onAppended = init.onAppended;
    this.#onCut = init.onCut;
    this.files = new SegmentFiles(init.fs ?? realFileSystem, join(init.dir, 'segments'));
    this.#commits = new GroupCommit({
      name: 'log',
      queue_bytes_max: init.queue_bytes_max ?? 64 * MIB,
      batch_bytes_max: init.batch_bytes_max ?? 8 * MIB,
      commit: (batch) => this.#commit(batch),
    });
  }

  /** Whether the log in `dir` still holds what lies before `position`: a file may be gone, or have lost its end. */
  static async reaches(dir: string, position: Position, fs: FileSystem = realFileSystem): Promise<boolean> {
    if (position.offset === 0) return true;
    const files = new SegmentFiles(fs, join(dir, 'segments'));
    try {
      const found = (await files.list()).find((each) => each.segment === position.segment);
      if (found === undefined) return false;
      files.add(found.segment, found.salt, 0);
      const file = await fs.open(files.path(position.segment), 'read');
      const size = await file.size();
      await file.close();
      return size >= position.offset;
    } catch {
      return false;
    }
  }

  static async open(init: SegmentLogInit): Promise<SegmentLog> {
    const log = new SegmentLog(init);
    await log.files.fs.makeDir(log.files.dir);
    await log.#recover(init);
    return log;
  }

  /** The segment that is being written, if any. */
  get active(): number | undefined {
    return this.#active?.segment;
  }

  /** The end of the last acknowledged record; what `from` may be at the next open. */
  get tail(): Position {
    return this.#active === undefined
      ? { segment: this.#segment_last, offset: 0 }
      : { segment: this.#active.segment, offset: this.#active.tail };
  }

  get seq(): number {
    return this.#seq;
  }

  get stats(): { batches_total: number; entries_total: number; waiting_bytes: number } {
    const { batches_total, entries_total, waiting_bytes } = this.#commits;
    return { batches_total, entries_total, waiting_bytes };
  }

  /**
   * Appends records that stand or fall together; resolves when they are durable, or with `durable: false` when they are
   * written.
   */
  append(records: readonly RecordInput[], signal: AbortSignal, init: AppendInit = {}): Promise<readonly Appended[]> {
    let bytes = 0;
    for (const record of records) {
      assert(record.id.length === ID_BYTES, 'a record id has 32 bytes');
      assert(record.type >= 1 && record.type <= 255, 'a record type is 1 to 255');
      assert((record.meta?.length ?? 0) <= META_BYTES_MAX, 'meta is at most 65535 bytes');
      bytes += recordBytes(record.payload.length, record.meta?.length ?? 0);
    }
    if (bytes > this.#segment_bytes) {
      return Promise.reject(
        new RonError('payload_too_large', `${bytes} bytes do not fit a segment of ${this.#segment_bytes}`),
      );
    }
    const refusal = this.#refusedFor();
    if (refusal !== undefined) return Promise.reject(refusal);
    return this.#commits.append({ records, bytes, durable: init.durable ?? true }, bytes, signal);
  }

  /** Makes durable what was appended before; what could not be made so is told by `isDurable`. */
  async sync(signal: AbortSignal): Promise<void> {
    await this.#commits.append({ records: [], bytes: 0, durable: true }, 0, signal);
  }

  /** Whether what lies before `end` of a segment survives a crash. */
  isDurable(segment: number, end: number): boolean {
    return this.files.has(segment) && end <= this.files.durableBytesOf(segment);
  }

  /** The record at a position; undefined when there is none, or it is damaged. */
  async read(position: Position, payload_bytes: number, meta_bytes: number): Promise<LogRecord | undefined> {
    // Memory of its own: who keeps a small record must not keep the pool that it was cut from.
    const bytes = Buffer.allocUnsafeSlow(HEADER_BYTES + payload_bytes + meta_bytes);
    const salt = this.files.saltOf(position.segment);
    const count = await this.files.read(position.segment, bytes, bytes.length, position.offset);
    return count < bytes.length ? undefined : recordIn(bytes, salt, payload_bytes, meta_bytes);
  }

  /** The same without waiting for a disk; undefined also when that cannot be. */
  readNow(position: Position, payload_bytes: number, meta_bytes: number): LogRecord | undefined {
    const { segment, offset } = position;
    const bytes = Buffer.allocUnsafeSlow(HEADER_BYTES + payload_bytes + meta_bytes);
    if (this.files.readNow(segment, bytes, bytes.length, offset) !== bytes.length) return undefined;
    return recordIn(bytes, this.files.saltOf(segment), payload_bytes, meta_bytes);
  }

  /**
   * Reports every record of a segment: for scrub, compaction and rebuilding an index. `body` is the payload and then the
   * meta, valid during the call; when `onRecord` returns a promise, the scan waits for it.
   */
  async scanSegment(
    segment: number,
    onRecord: (head: RecordHead, position: Position, body: Buffer) => void | Promise<void>,
    onDamage: (damage: Damage) => void,
    signal: AbortSignal,
  ): Promise<void> {
    using lease = this.files.lease(segment);
    const file = await this.files.fs.open(this.files.path(segment), 'read');
    assert(lease !== undefined, 'held while the segment is read');
    try {
      const end = await scan({
        file,
        from: 0,
        salt: this.files.saltOf(segment),
        onRecord: (head, offset, body) => onRecord(head, { segment, offset }, body),
        onGap: (offset, bytes) => onDamage({ segment, offset, bytes, what: 'gap' }),
        signal,
      });
      // What follows the tail of the segment being written is not damage, it is being written.
      const isActive = segment === this.#active?.segment;
      if (end.torn_bytes > 0 && !isActive) {
        onDamage({ segment, offset: end.tail, bytes: end.torn_bytes, what: 'torn tail' });
      }
    } finally {
      await file.close();
    }
  }

  /** Lets the next append begin a new segment, so that the one being written can be compacted after it. */
  rotate(): void {
    this.#rotateNext = true;
  }

  /** Removes a segment that nobody needs any more, once its last lease is gone. Durable when it resolves. */
  async remove(segment: number): Promise<void> {
    assert(segment !== this.#active?.segment, 'a segment that is being written is not removed');
    await this.files.remove(segment);
  }

  /** Commits what waits, then closes the files. */
  async close(): Promise<void> {
    await this.#commits.close();
    // What waits for no sync was acknowledged to nobody: a failure here loses nothing that was promised.
    await this.#seal().catch(() => undefined);
    await this.files.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #recover(init: SegmentLogInit): Promise<void> {
    this.#seq = init.seq_known ?? 0;
    const segments = await this.files.list();
    for (const { segment, salt } of segments) {
      this.files.add(segment, salt, 0);
      this.#segment_last = segment;
      const isKnown = segment < (init.from?.segment ?? 0);
      const isLast = segment === segments.at(-1)!.segment;
      const file = await this.#openAtStart(segment, isLast);
      try {
        const bytes = await file.size();
        this.files.setBytes(segment, bytes);
        this.files.setDurableBytes(segment, bytes);
        if (!isKnown) await this.#replay(segment, file, isLast, init);
      } finally {
        if (file !== this.#active?.file) await file.close();
      }
    }
  }

  /** The last segment is opened to go on with it, unless the disk is read-only. */
  async #openAtStart(segment: number, isLast: boolean): Promise<File> {
    const { fs } = this.files;
    const path = this.files.path(segment);
    if (!isLast) return await fs.open(path, 'read');
    try {
      return await fs.open(path, 'write');
    } catch (error) {
      if (!isReadOnly(error)) throw error;
      this.#refuseAfter(error);
      return await fs.open(path, 'read');
    }
  }

  async #replay(segment: number, file: File, isLast: boolean, init: SegmentLogInit): Promise<void> {
    // First: what was written but not synced before the crash is acknowledged by being replayed, so the next crash must
    // not take it.
    await file.sync();
    const end = await scan({
      file,
      from: segment === init.from?.segment ? init.from.offset : 0,
      salt: this.files.saltOf(segment),
      onRecord: (head, offset, body) => {
        this.#seq = Math.max(this.#seq, head.seq);
        return init.onRecord?.(head, { segment, offset }, body);
      },
      onGap: (offset, bytes) => init.onDamage?.({ segment, offset, bytes, what: 'gap' }),
      signal: init.signal,
    });
    if (end.torn_bytes > 0) init.onDamage?.({ segment, offset: end.tail, bytes: end.torn_bytes, what: 'torn tail' });
    if (!isLast || this.#refusal !== undefined) return;
    if (end.torn_bytes > 0) {
      await file.truncate(end.tail);
      await file.sync();
    }
    this.files.setBytes(segment, end.tail);
    this.files.setDurableBytes(segment, end.tail);
    if (end.tail < this.#segment_bytes) this.#active = { segment, file, tail: end.tail };
  }

  async #commit(batch: readonly Group[]): Promise<readonly (readonly Appended[])[]> {
    const results: (readonly Appended[])[] = [];
    while (results.length < batch.length) await this.#commitPart(batch, results);
    if (batch.some((group) => group.durable)) await this.#syncActive();
    this.#failures = 0;
    this.#refusal = undefined;
    return results;
  }

  /** Writes as many groups as the segment has room for, at least one. */
  async #commitPart(batch: readonly Group[], results: (readonly Appended[])[]): Promise<void> {
    const first = results.length;
    const { bytes } = batch[first] as Group;
    if (bytes === 0 && !this.#rotateNext) return void results.push([]);
    const active = await this.#roomFor(bytes);
    const write = new BatchWrite(
      { segment: active.segment, offset: active.tail },
      this.files.saltOf(active.segment),
      this.#seq,
    );
    for (const group of batch.slice(first)) {
      if (active.tail + write.bytes + group.bytes > this.#segment_bytes) break;
      results.push(write.add(group.records));
    }
    await this.#write(active, write);
    for (let index = first; index < results.length; index++) {
      this.#onAppended?.((batch[index] as Group).records, results[index] as readonly Appended[]);
    }
  }

  async #write(active: Active, write: BatchWrite): Promise<void> {
    if (write.bytes === 0) return;
    try {
      await active.file.write(write.buffers(), active.tail);
    } catch (error) {
      await this.#rollBack(active, error);
      throw this.#refuseAfter(error);
    }
    active.tail += write.bytes;
    this.#seq = write.seq;
    this.files.setBytes(active.segment, active.tail);
  }

  async #syncActive(): Promise<void> {
    const active = this.#active;
    if (active === undefined || this.isDurable(active.segment, active.tail)) return;
    const { tail } = active;
    try {
      await active.file.sync();
    } catch (error) {
      await this.#retire(active);
      throw this.#refuseAfter(error);
    }
    this.files.setDurableBytes(active.segment, tail);
  }

  /** The segment to write to, a new one when `bytes` do not fit. */
  async #roomFor(bytes: number): Promise<Active> {
    const active = this.#active;
    if (active !== undefined && !this.#rotateNext && active.tail + bytes <= this.#segment_bytes) return active;
    await this.#seal();
    this.#rotateNext = false;
    const segment = this.#segment_last + 1;
    try {
      const file = await this.files.create(segment);
      this.#segment_last = segment;
      const opened = { segment, file, tail: 0 };
      // The name must be as durable as the records that will be acknowledged in it.
      await this.files.fs.syncDir(this.files.dir);
      this.#active = opened;
      return opened;
    } catch (error) {
      throw this.#refuseAfter(error);
    }
  }

  /** A full disk leaves part of a write: it is cut off, which also gives back its room. Any other failure retires. */
  async #rollBack(active: Active, cause: unknown): Promise<void> {
    if (!isFull(cause)) return await this.#retire(active);
    await active.file.truncate(active.tail).catch(() => this.#retire(active));
  }

  /**
   * Never uses the descriptor again: after a failed sync the kernel may have dropped the pages and report success. What it
   * was to make durable can still be read, and would count as durable after a restart: it is cut off.
   */
  async #retire(active: Active): Promise<void> {
    this.#active = undefined;
    await active.file.close().catch(() => undefined);
    const { segment } = active;
    const offset = this.files.durableBytesOf(segment);
    this.files.setBytes(segment, offset);
    this.#onCut?.({ segment, offset });
    // On a disk that is quite dead this fails as well; then whoever opens it again has more to worry about.
    await this.#truncate(segment, offset).catch(() => undefined);
  }

  async #truncate(segment: number, bytes: number): Promise<void> {
    const file = await this.files.fs.open(this.files.path(segment), 'write');
    try {
      await file.truncate(bytes);
      await file.sync();
    } finally {
      await file.close();
    }
  }

  async #seal(): Promise<void> {
    await this.#syncActive();
    const active = this.#active;
    this.#active = undefined;
    await active?.file.close();
  }

  #refuseAfter(cause: unknown): RonError {
    const wait_ms = Math.min(RETRY_AFTER_FAILURE_MS_MAX, RETRY_AFTER_FAILURE_MS_MIN * 2 ** this.#failures);
    this.#failures += 1;
    this.#refuse_until_ms = sched.now_ms() + wait_ms;
    this.#refusal = diskError(cause, wait_ms);
    return this.#refusal;
  }

  #refusedFor(): RonError | undefined {
    return this.#refusal !== undefined && sched.now_ms() < this.#refuse_until_ms ? this.#refusal : undefined;
  }
}
