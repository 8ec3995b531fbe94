/**
 * The end of a log: the segment that is being written, and the change to the next one.
 *
 * Promise: what `commit` was told to make durable is so when it resolves. A segment whose write or sync failed is retired: its
 * descriptor is never used again, and what was not durable in it is cut off. For a while after a failure `refusal` says
 * so, so that a broken disk does not fill up with new segments.
 * Bound: one commit at a time, one segment being written. Cancellation: none; file calls end by themselves.
 */
import { sched, type RonError } from '@ron/kernel';
import { BatchMemory, BatchWrite } from './batch-write.ts';
import { diskError, isFull, isGone } from './disk-error.ts';
import type { File } from './file-system.ts';
import type { Appended, Position, RecordInput } from './record.ts';
import type { SegmentFiles } from './segment-files.ts';

/** Records that stand or fall together. */
export interface Group {
  readonly records: readonly RecordInput[];
  readonly bytes: number;
  readonly durable: boolean;
}

/** The segment that is being written. */
export interface Active {
  readonly segment: number;
  readonly file: File;
  /** What has to lie where its name is; undefined where nobody can tell. */
  readonly identity: string | undefined;
  /** Where the next record goes. */
  tail: number;
}

export async function activeOf(segment: number, file: File, tail: number): Promise<Active> {
  return { segment, file, tail, identity: await file.identity?.() };
}

/** Where a log goes on after it was opened. */
export interface LogEnd {
  /** The last segment, when it has room and can be written. */
  readonly active: Active | undefined;
  readonly segment_last: number;
  readonly seq: number;
  /** Why the last segment cannot be written, if that is so. */
  readonly failure: unknown;
}

export interface SegmentWriterInit {
  files: SegmentFiles;
  segment_bytes: number;
  onAppended: ((records: readonly RecordInput[], places: readonly Appended[]) => void) | undefined;
  onCut: ((position: Position) => void) | undefined;
}

const RETRY_AFTER_FAILURE_MS_MIN = 100;
const RETRY_AFTER_FAILURE_MS_MAX = 5000;

export class SegmentWriter {
  readonly #init: SegmentWriterInit;
  readonly #memory = new BatchMemory();
  readonly #files: SegmentFiles;
  #active: Active | undefined;
  #segment_last: number;
  #seq: number;
  #rotateNext = false;
  #failures = 0;
  #refuse_until_ms = 0;
  #refusal: RonError | undefined;

  constructor(init: SegmentWriterInit, end: LogEnd) {
    this.#init = init;
    this.#files = init.files;
    this.#active = end.active;
    this.#segment_last = end.segment_last;
    this.#seq = end.seq;
    if (end.failure !== undefined) this.#refuseAfter(end.failure);
  }

  /** The segment that is being written, if any. */
  get active(): number | undefined {
    return this.#active?.segment;
  }

  /** The end of the last record. */
  get tail(): Position {
    return this.#active === undefined
      ? { segment: this.#segment_last, offset: 0 }
      : { segment: this.#active.segment, offset: this.#active.tail };
  }

  get seq(): number {
    return this.#seq;
  }

  /** Why nothing is written now, after a failure a moment ago. */
  get refusal(): RonError | undefined {
    return this.#refusal !== undefined && sched.now_ms() < this.#refuse_until_ms ? this.#refusal : undefined;
  }

  /** Lets the next record begin a new segment. */
  rotate(): void {
    this.#rotateNext = true;
  }

  /** Writes a batch, and syncs it when one of its groups is to be durable; the places of each group's records. */
  async commit(batch: readonly Group[]): Promise<readonly (readonly Appended[])[]> {
    const results: (readonly Appended[])[] = [];
    while (results.length < batch.length) await this.#commitPart(batch, results);
    if (batch.some((group) => group.durable)) await this.#makeDurable();
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
      this.#files.saltOf(active.segment),
      this.#seq,
      this.#memory,
    );
    for (const group of batch.slice(first)) {
      if (active.tail + write.bytes + group.bytes > this.#init.segment_bytes) break;
      results.push(write.add(group.records));
    }
    await this.#write(active, write);
    for (let index = first; index < results.length; index++) {
      this.#init.onAppended?.((batch[index] as Group).records, results[index] as readonly Appended[]);
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
    this.#files.setBytes(active.segment, active.tail);
  }

  /**
   * Also when there is nothing to sync it looks whether the segment is where it belongs: a descriptor syncs as well into a
   * file that was deleted, and nobody would ever find what was acknowledged there.
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
    if (active !== undefined) this.#files.setDurableBytes(active.segment, tail);
  }

  /** The segment to write to, a new one when `bytes` do not fit. */
  async #roomFor(bytes: number): Promise<Active> {
    const active = this.#active;
    if (active !== undefined && !this.#rotateNext && active.tail + bytes <= this.#init.segment_bytes) return active;
    await this.seal();
    this.#rotateNext = false;
    const segment = this.#segment_last + 1;
    try {
      // Its name is as durable as the records that will be acknowledged in it.
      const file = await this.#files.create(segment);
      this.#segment_last = segment;
      this.#active = await activeOf(segment, file, 0);
      return this.#active;
    } catch (error) {
      throw this.#refuseAfter(error);
    }
  }

  /** A full disk leaves part of a write: it is cut off, which also gives back its room. Any other failure retires. */
  async #rollBack(active: Active, cause: unknown): Promise<void> {
    if (!isFull(cause)) return await this.#retire(active, cause);
    await active.file.truncate(active.tail).catch((error: unknown) => this.#retire(active, error));
  }

  /**
   * Never uses the descriptor again: after a failed sync the kernel may have dropped the pages and report success. What it
   * was to make durable can still be read, and would count as durable after a restart: it is cut off.
   */
  async #retire(active: Active, cause: unknown): Promise<void> {
    this.#active = undefined;
    await active.file.close().catch(() => undefined);
    const { segment } = active;
    const offset = this.#files.durableBytesOf(segment);
    this.#files.setBytes(segment, offset);
    this.#init.onCut?.({ segment, offset });
    // What lies there now is not ours to cut.
    if (isGone(cause)) return;
    // On a disk that is quite dead this fails as well; then whoever opens it again has more to worry about.
    await this.#truncate(segment, offset).catch(() => undefined);
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
