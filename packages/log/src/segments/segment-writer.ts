/**
 * Writes the active segment of a log and rotates to the next one.
 *
 * Contract: a durable group is durable when `commit` resolves. `onDurable` receives every group of records in log order,
 * in the same synchronous step in which `durable` advances past it; a group whose write or sync failed is never reported.
 * A segment whose write or sync failed is retired: its descriptor is never used again, and its bytes that are not durable
 * are cut off. For a while after a failure `refusal` is set, so that a broken disk does not fill up with new segments.
 * Bound: one commit at a time, one segment being written. At most `UNSYNCED_BYTES_MAX` bytes and `UNSYNCED_RECORDS_MAX`
 * records, and the batch that exceeds one of them, wait for a sync. Overflow: the commit syncs them.
 */
import { sched, type RonError } from '@ron/kernel';
import { BatchMemory, BatchWrite } from './batch-write.ts';
import { diskError, isFull, isGone } from '../disk/disk-error.ts';
import type { File } from '../disk/file-system.ts';
import type { Appended, DurableEnd, DurableRecord, Position, RecordInput } from './record.ts';
import type { SegmentFiles } from './segment-files.ts';

/** Records that are written atomically. */
export interface Group {
  readonly records: readonly RecordInput[];
  readonly bytes: number;
  readonly durable: boolean;
  /** As in `AppendInit`. */
  readonly count: number;
}

/** The segment that is being written. */
export interface Active {
  readonly segment: number;
  readonly file: File;
  /** Identifies the file that must be at the path; undefined if the file system has no identities. */
  readonly identity: string | undefined;
  /** The offset of the next record. */
  tail: number;
}

export async function activeOf(segment: number, file: File, tail: number): Promise<Active> {
  return { segment, file, tail, identity: await file.identity?.() };
}

/** The state in which a log continues after it was opened. */
export interface LogEnd {
  /** The last segment, when it has room and can be written. */
  readonly active: Active | undefined;
  readonly segment_last: number;
  readonly durable: DurableEnd;
  /** Why the last segment cannot be written; undefined if it can. */
  readonly failure: unknown;
}

export interface SegmentWriterInit {
  files: SegmentFiles;
  segment_bytes: number;
  onDurable: ((records: readonly DurableRecord[], places: readonly Appended[]) => void) | undefined;
  /** As in `SegmentLogInit`. */
  firstRecords: (() => readonly RecordInput[]) | undefined;
}

/** Written and not synced, all in the active segment. */
interface Unsynced {
  readonly records: readonly DurableRecord[];
  readonly places: readonly Appended[];
}

const UNSYNCED_BYTES_MAX = 64 * 1024 * 1024;
const UNSYNCED_RECORDS_MAX = 4096;

const RETRY_AFTER_FAILURE_MS_MIN = 100;
const RETRY_AFTER_FAILURE_MS_MAX = 5000;

export class SegmentWriter {
  readonly #init: SegmentWriterInit;
  readonly #memory = new BatchMemory();
  readonly #files: SegmentFiles;
  #active: Active | undefined;
  /** The durable end of a retired segment whose rest could not be cut off yet. */
  #uncut: Position | undefined;
  #segment_last: number;
  #seq: number;
  #durable: DurableEnd;
  #unsynced: Unsynced[] = [];
  #unsynced_records = 0;
  #rotateNext = false;
  #failures = 0;
  #refuse_until_ms = 0;
  #refusal: RonError | undefined;

  constructor(init: SegmentWriterInit, end: LogEnd) {
    this.#init = init;
    this.#files = init.files;
    this.#active = end.active;
    this.#segment_last = end.segment_last;
    this.#seq = end.durable.seq;
    this.#durable = end.durable;
    if (end.failure !== undefined) this.#refuseAfter(end.failure);
  }

  /** The segment that is being written, if any. */
  get active(): number | undefined {
    return this.#active?.segment;
  }

  /** The end of the durable part of the log. */
  get durable(): DurableEnd {
    return this.#durable;
  }

  /** The error with which appends are refused for a while after a failure. */
  get refusal(): RonError | undefined {
    return this.#refusal !== undefined && sched.now_ms() < this.#refuse_until_ms ? this.#refusal : undefined;
  }

  /** Lets the next record begin a new segment. */
  rotate(): void {
    this.#rotateNext = true;
  }

  /**
   * Writes a batch, and syncs it if one of its groups is durable. Returns the places of each group's records. Groups that
   * need not be durable get theirs by `answer` before the sync, unless too many wait for it.
   */
  async commit(
    batch: readonly Group[],
    answer: (index: number, places: readonly Appended[]) => void,
  ): Promise<readonly (readonly Appended[])[]> {
    const results: (readonly Appended[])[] = [];
    while (results.length < batch.length) await this.#commitPart(batch, results);
    const hasMany = this.#hasManyUnsynced();
    for (const [index, group] of batch.entries()) if (!group.durable && !hasMany) answer(index, results[index]!);
    if (hasMany || batch.some((group) => group.durable)) await this.#makeDurable();
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
    const write = this.#batchWrite(active);
    for (const group of batch.slice(first)) {
      // A group that does not fit beside the first records of a new segment fits no other segment either.
      const isOver = active.tail + write.bytes + group.bytes > this.#init.segment_bytes;
      if (isOver && results.length > first) break;
      results.push(write.add(group.records));
    }
    await this.#write(active, write);
    for (let index = first; index < results.length; index++) {
      this.#hold(batch[index] as Group, results[index] as readonly Appended[]);
    }
  }

  /** Payloads of groups that are not durable are not kept until the sync: the caller may reuse them. */
  #hold({ records, durable }: Pick<Group, 'records' | 'durable'>, places: readonly Appended[]): void {
    if (records.length === 0) return;
    this.#unsynced_records += records.length;
    if (this.#init.onDurable === undefined) return;
    const held = records.map((record) => ({
      type: record.type,
      id: record.id,
      payload_bytes: record.payload.length,
      meta_bytes: record.meta?.length ?? 0,
      payload: durable ? record.payload : undefined,
      context: record.context,
    }));
    this.#unsynced.push({ records: held, places });
  }

  #hasManyUnsynced(): boolean {
    if (this.#active === undefined) return false;
    const bytes = this.#active.tail - this.#files.durableBytesOf(this.#active.segment);
    return bytes > UNSYNCED_BYTES_MAX || this.#unsynced_records > UNSYNCED_RECORDS_MAX;
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
    this.#files.setBytes(active.segment, active.tail);
  }

  /**
   * Verifies even without unsynced records that the segment is still at its path: a sync of a deleted file succeeds, but
   * its records cannot be found after a restart.
   */
  async #makeDurable(): Promise<void> {
    const active = this.#active;
    const tail = active?.tail ?? 0;
    try {
      if (active !== undefined && tail > this.#files.durableBytesOf(active.segment)) await active.file.sync();
      await this.#files.requireThere(active);
    } catch (error) {
      if (active !== undefined) await this.#retire(active, error);
      throw this.#refuseAfter(error);
    }
    if (active !== undefined) this.#advance(active.segment, tail);
  }

  #advance(segment: number, offset: number): void {
    this.#files.setDurableBytes(segment, offset);
    this.#durable = { position: { segment, offset }, seq: this.#seq };
    // [storage I-1] The index learns of durable records in one synchronous step.
    for (const { records, places } of this.#takeUnsynced()) this.#init.onDurable?.(records, places);
  }

  #takeUnsynced(): readonly Unsynced[] {
    const taken = this.#unsynced;
    this.#unsynced = [];
    this.#unsynced_records = 0;
    return taken;
  }

  /** The segment to write to, a new one when `bytes` do not fit. A segment gets its first records before. */
  async #roomFor(bytes: number): Promise<Active> {
    const active = this.#active;
    const hasRoom = active !== undefined && !this.#rotateNext && active.tail + bytes <= this.#init.segment_bytes;
    const open = hasRoom ? active : await this.#nextSegment();
    if (open.tail === 0) await this.#writeFirst(open);
    return open;
  }

  async #writeFirst(active: Active): Promise<void> {
    const records = this.#init.firstRecords?.() ?? [];
    if (records.length === 0) return;
    const write = this.#batchWrite(active);
    const places = write.add(records);
    await this.#write(active, write);
    this.#hold({ records, durable: true }, places);
    await this.#makeDurable();
  }

  #batchWrite({ segment, tail }: Active): BatchWrite {
    return new BatchWrite({ segment, offset: tail }, this.#files.saltOf(segment), this.#seq, this.#memory);
  }

  async #nextSegment(): Promise<Active> {
    await this.seal();
    try {
      await this.#cut();
    } catch (error) {
      throw this.#refuseAfter(error);
    }
    this.#rotateNext = false;
    // The attempt takes the number: a create that fails or is late may still leave a file with it.
    const segment = ++this.#segment_last;
    try {
      // The directory is synced: the name is as durable as the records that will be acknowledged in the segment.
      const file = await this.#files.create(segment);
      this.#active = await activeOf(segment, file, 0);
      this.#advance(segment, 0);
      return this.#active;
    } catch (error) {
      throw this.#refuseAfter(error);
    }
  }

  /** A full disk leaves a partial write: it is cut off, which also frees its space. Any other failure retires the segment. */
  async #rollBack(active: Active, cause: unknown): Promise<void> {
    if (!isFull(cause)) return await this.#retire(active, cause);
    await active.file.truncate(active.tail).catch((error: unknown) => this.#retire(active, error));
  }

  /**
   * Never uses the descriptor again: after a failed sync the kernel may have dropped the pages and report success. The
   * records after the durable part can still be read and would count as durable after a restart: they are cut off.
   */
  async #retire(active: Active, cause: unknown): Promise<void> {
    this.#active = undefined;
    this.#takeUnsynced();
    const { segment } = active;
    const offset = this.#files.durableBytesOf(segment);
    this.#files.setBytes(segment, offset);
    await active.file.close().catch(() => undefined);
    // Another file may be at that path now.
    if (isGone(cause)) return;
    this.#uncut = { segment, offset };
    // This fails too on a dead disk: the next append tries again before it writes.
    await this.#cut().catch(() => undefined);
  }

  /**
   * Cuts off records that were never durable. No segment is created before: after a restart only the last segment is
   * replayed, and a record that comes back from an older one would be in no range of superseded records.
   */
  async #cut(): Promise<void> {
    if (this.#uncut === undefined) return;
    const { segment, offset } = this.#uncut;
    if (this.#files.has(segment)) await this.#truncate(segment, offset);
    this.#uncut = undefined;
  }

  async #truncate(segment: number, bytes: number): Promise<void> {
    const file = await this.#files.fs.open(this.#files.path(segment), 'write');
    try {
      await file.truncate(bytes);
      await file.sync();
    } finally {
      await file.close();
    }
  }

  /** Closes the segment that is being written, durably. */
  async seal(): Promise<void> {
    await this.#makeDurable();
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
}
