/**
 * The log of receipts and of their signed batches, and its index.
 *
 * Contract: a receipt whose append resolved survives any crash. A receipt exists once: of two records with one id the first
 * counts, and an append of a known id writes nothing. State changes in the step in which the log reports a sync, through the same
 * function as at a replay, so a restart finds the state that it left. Damage is reported and skipped; receipts whose batch is
 * damaged are unsigned again.
 * `isRestorable` is true only for an id that this log certainly never had: one that a crash kept out of it. A segment that the
 * disk cannot read at the start is kept, and its receipts return once it can (late-receipts.ts).
 * Retention removes whole segments, oldest first: by age, by the bytes of the log, and when the index is full. A segment with
 * unsigned receipts stays, unless there is no signer.
 * Bound: `bytes_max` plus two segments on disk, and the segments that cannot be read; the index; `ROOM` rows are kept free for
 * appends under way.
 * Overflow: `backpressure`. Cancellation: a waiting append leaves with its signal; one that has begun completes.
 */
import { isRonError, orAborted, RonError, sched, touch } from '@ron/kernel';
import type {
  Appended,
  Damage,
  DurableRecord,
  FileSystem,
  Position,
  RecordInput,
  SegmentLog,
  SegmentLogInit,
} from '@ron/log';
import { ulidBytes, type WebhookReceipt } from '@ron/proto';
import { openLog, type LogExtent } from '../log-extent.ts';
import { UnreadSegments } from '../unread-segments.ts';
import { copyLate } from './late-receipts.ts';
import { NO_ROW, ReceiptIndex } from './receipt-index.ts';
import {
  batchRecord,
  BATCH_RECORD,
  idsIn,
  receiptRecord,
  RECEIPT_RECORD,
  replacedRecord,
  REPLACED_RECORD,
  type Batch,
} from './receipt-records.ts';

export interface ReceiptLogInit {
  readonly dir: string;
  readonly fs: FileSystem;
  /** Follows the log. Default: none is kept. */
  readonly extent?: LogExtent | undefined;
  readonly bytes_max: number;
  readonly max_age_ms: number;
  /** False without a signer: retention does not wait for signatures. */
  readonly keepsUnsigned: boolean;
  /** An earlier log in the directory was lost: the receipts of this one began later. */
  readonly isReplaced: boolean;
  readonly onDamage: (damage: Damage) => void;
  /** A segment that the start could not read was read, and so many of its receipts are back. */
  readonly onRead: (segment: number, count: number) => void;
  readonly onRemoved: (count: number) => void;
  /** Called in the step in which receipts or batches became durable. */
  readonly onChange: () => void;
  readonly signal: AbortSignal;
}

const KIB = 1024;
const SECOND_MS = 1000;
/** Of `bytes_max`. */
const INDEX_SHARE = 0.01;
/** Of the index: retention removes a small part of the receipts at a time. */
const SEGMENT_SHARE = 8;
/** The least bytes of a receipt in the log. */
const RECORD_BYTES = 384;
const SEGMENT_BYTES_MIN = 256 * KIB;
const SEGMENT_BYTES_MAX = 16 * KIB * KIB;
const QUEUE_BYTES_MAX = 8 * KIB * KIB;
/** Rows for two batches of the sender. */
const ROOM = 256;

export class ReceiptLog implements AsyncDisposable {
  readonly index: ReceiptIndex;
  /** Segments that the start could not read. */
  readonly unread = new UnreadSegments();
  readonly #init: ReceiptLogInit;
  /** Ids whose append is under way. Bound: `QUEUE_BYTES_MAX` of records. */
  readonly #appending = new Map<string, Promise<unknown>>();
  /** Segments without rows, which `retain` removes. */
  readonly #dropped: number[] = [];
  #log!: SegmentLog;
  /** This process removed receipts that were appended until this time. */
  #removed_ms = -Infinity;
  /** Earlier processes removed receipts that were appended until this time, at most. */
  #began_ms = -Infinity;
  /** A part of the log is damaged: it may have had any receipt. */
  #isDamaged = false;
  /** The time of the first record of each segment that a start found. */
  readonly #firsts_ms = new Map<number, number>();
  stored_total = 0;
  signed_total = 0;
  removed_total = 0;

  private constructor(init: ReceiptLogInit) {
    this.#init = init;
    this.index = new ReceiptIndex(Math.floor(init.bytes_max * INDEX_SHARE));
  }

  static async open(init: ReceiptLogInit): Promise<ReceiptLog> {
    const receipts = new ReceiptLog(init);
    const bytes = (receipts.index.capacity * RECORD_BYTES) / SEGMENT_SHARE;
    const segments: SegmentLogInit = {
      dir: init.dir,
      fs: init.fs,
      segment_bytes: Math.min(SEGMENT_BYTES_MAX, Math.max(SEGMENT_BYTES_MIN, Math.floor(bytes))),
      queue_bytes_max: QUEUE_BYTES_MAX,
      onRecord: ({ type, id, payload_bytes, time_s }, position, body) => {
        const { segment } = position;
        if (!receipts.#firsts_ms.has(segment)) receipts.#firsts_ms.set(segment, time_s * SECOND_MS);
        receipts.#apply(type, id, body.subarray(0, payload_bytes), position, time_s * SECOND_MS);
      },
      onDamage: (damage) => receipts.#onDamage(damage),
      skipsUnreadable: true,
      onDurable: (records, places) => receipts.#onDurable(records, places),
      signal: init.signal,
    };
    receipts.#log = await openLog(segments, init.extent);
    receipts.#makeRoom(0);
    receipts.#findBegin();
    if (init.isReplaced) await receipts.#noteReplaced();
    receipts.stored_total = receipts.signed_total = receipts.removed_total = 0;
    return receipts;
  }

  get log(): SegmentLog {
    return this.#log;
  }

  get bytes(): number {
    return this.#log.files.totals().bytes;
  }

  /** Whether no room can be made for the receipts of a batch. */
  get isFull(): boolean {
    return this.#kept + ROOM > this.index.capacity;
  }

  /** Why appends fail now. */
  get problem(): string | undefined {
    return this.#log.refusal?.message;
  }

  has(id: string): boolean {
    touch(this);
    return this.index.find(ulidBytes(id)) !== NO_ROW;
  }

  /**
   * Whether a missing receipt was never in the log. The time of its id is that of its delivery, before its append; an id of the
   * future is not one of a delivery. A removed receipt must not be written again: the first one was given out, and both would be
   * valid.
   */
  isRestorable(id: string): boolean {
    touch(this);
    if (this.#isDamaged || this.unread.size > 0) return false;
    const time_ms = timeOf(id);
    return time_ms <= sched.wall_ms() && time_ms > Math.max(this.#began_ms, this.#removed_ms);
  }

  /** [interop I-9] Resolves once every receipt is durable. */
  async append(receipts: readonly WebhookReceipt[], signal: AbortSignal): Promise<void> {
    for (let missing = this.#missing(receipts); missing.length > 0; missing = this.#missing(receipts)) {
      const others = missing.flatMap(({ id }) => this.#appending.get(id) ?? []);
      // A failure of another caller is its own; this one tries again.
      if (others.length > 0) await orAborted(Promise.allSettled(others), signal);
      else await this.#appendNew(missing, signal);
      signal.throwIfAborted();
    }
  }

  async appendBatch(batch: Batch, signal: AbortSignal): Promise<void> {
    await this.#log.append([batchRecord(batch)], signal);
  }

  /** Whether `retain` has work besides the age of receipts. */
  get isRetentionDue(): boolean {
    const { bytes_max, keepsUnsigned } = this.#init;
    if (this.#dropped.length > 0 || this.unread.wait_ms <= 0) return true;
    return this.#kept_bytes > bytes_max && this.index.canDrop(keepsUnsigned);
  }

  /** Removes segments that are too old, beyond `bytes_max`, or without rows. Reads those that the start could not read. */
  async retain(signal: AbortSignal): Promise<void> {
    const { bytes_max, max_age_ms, keepsUnsigned } = this.#init;
    if (this.unread.wait_ms <= 0) await this.unread.tryAll((segment) => this.#readLate(segment, signal), signal);
    const oldest_ms = sched.wall_ms() - max_age_ms;
    if ((this.index.oldest?.newest_ms ?? Infinity) < oldest_ms) this.#rotateOld(oldest_ms);
    while (this.index.canDrop(keepsUnsigned)) {
      const isOld = this.index.oldest!.newest_ms < oldest_ms;
      if (!isOld && this.#kept_bytes <= bytes_max) break;
      this.#dropOldest();
    }
    await this.#removeDropped(signal);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#log.close();
  }

  /** Of the segments with rows. Those that cannot be read take no room of the others. */
  get #kept_bytes(): number {
    const { files } = this.#log;
    const dropped = this.#dropped.filter((segment) => !this.unread.has(segment));
    const dropped_bytes = dropped.reduce((sum, segment) => sum + files.bytesOf(segment), 0);
    return this.bytes - this.unread.bytesIn(files) - dropped_bytes;
  }

  get #kept(): number {
    return this.index.kept(this.#init.keepsUnsigned);
  }

  #missing(receipts: readonly WebhookReceipt[]): readonly WebhookReceipt[] {
    const missing = new Map<string, WebhookReceipt>();
    for (const receipt of receipts) if (!this.has(receipt.id)) missing.set(receipt.id, receipt);
    return [...missing.values()];
  }

  async #appendNew(receipts: readonly WebhookReceipt[], signal: AbortSignal): Promise<void> {
    this.#makeRoom(receipts.length + this.#appending.size);
    const written = this.#log.append(receipts.map(receiptRecord), signal);
    for (const { id } of receipts) this.#appending.set(id, written);
    try {
      await written;
    } finally {
      touch(this);
      for (const { id } of receipts) this.#appending.delete(id);
    }
  }

  #onDurable(records: readonly DurableRecord[], places: readonly Appended[]): void {
    for (const [at, { type, id, payload }] of records.entries()) {
      const place = places[at]!;
      this.#apply(type, id, payload!, place, sched.wall_ms());
    }
    this.#init.onChange();
  }

  /** [interop I-2] The only place where the state changes, for a record of the replay and for one that became durable. */
  #apply(type: number, id: Uint8Array, payload: Uint8Array, place: Position, time_ms: number): void {
    touch(this);
    if (type === RECEIPT_RECORD) this.#applyReceipt(id, place, time_ms);
    else if (type === BATCH_RECORD) this.#applyBatch(payload, place);
    else if (type === REPLACED_RECORD) this.#began_ms = Math.max(this.#began_ms, time_ms + SECOND_MS);
  }

  #applyReceipt(id: Uint8Array, place: Position, time_ms: number): void {
    // The first record of an id counts.
    if (this.index.find(id) !== NO_ROW) return;
    this.index.add(id, place, time_ms);
    this.stored_total += 1;
    // A replay may find more than the index has room for.
    if (this.index.rows > this.index.capacity && this.index.canDrop(this.#init.keepsUnsigned)) this.#dropOldest();
  }

  #applyBatch(payload: Uint8Array, { segment, offset }: Position): void {
    let leaf = 0;
    for (const id of idsIn(payload)) {
      const row = this.index.find(id);
      if (row !== NO_ROW && this.index.isUnsigned(row)) {
        this.index.sign(row, { segment, offset, leaf });
        this.signed_total += 1;
      }
      leaf += 1;
    }
  }

  #makeRoom(count: number): void {
    const { index } = this;
    while (index.rows + count > index.capacity && index.canDrop(this.#init.keepsUnsigned)) this.#dropOldest();
    if (count === 0 || index.rows + count <= index.capacity) return;
    throw new RonError('backpressure', 'unsigned receipts fill the index of the receipt log');
  }

  #dropOldest(): void {
    const { segment, newest_ms } = this.index.oldest!;
    this.#dropped.push(segment);
    // Records have their time in seconds.
    this.#removed_ms = Math.max(this.#removed_ms, newest_ms + SECOND_MS);
    const count = this.index.dropOldest();
    this.removed_total += count;
    this.#init.onRemoved(count);
  }

  /** At a start: removed receipts are older than the first record behind the segments that are gone. */
  #findBegin(): void {
    const numbers = this.#log.files.numbers();
    // A segment that could not be read is kept although later ones were removed.
    const after_gap = numbers.findLast((number, at) => number !== (numbers[at - 1] ?? 0) + 1);
    // Nothing was ever removed if the log has all of its segments.
    if (after_gap === undefined && !this.#init.isReplaced) return;
    const first_ms = this.#init.isReplaced ? undefined : this.#firsts_ms.get(after_gap!);
    this.#began_ms = Math.max(this.#began_ms, (first_ms ?? sched.wall_ms()) + SECOND_MS);
    this.#firsts_ms.clear();
  }

  /** For later starts, after the operator accepted the loss. A disk that cannot be written has this start only. */
  async #noteReplaced(): Promise<void> {
    await this.#log.append([replacedRecord()], this.#init.signal).catch(() => undefined);
  }

  async #readLate(segment: number, signal: AbortSignal): Promise<boolean> {
    const removed_ms = this.#removed_ms;
    const append = async (records: readonly RecordInput[]): Promise<void> => {
      // Newer receipts do not make room for older ones.
      if (this.index.rows + records.length + this.#appending.size > this.index.capacity)
        throw new RonError('backpressure', 'the index of the receipt log has no room for late receipts');
      await this.#log.append(records, signal);
    };
    const wasRemoved = (id: string): boolean => timeOf(id) <= removed_ms;
    const onDamage = (damage: Damage): void => this.#damaged(damage);
    const count = await copyLate({ receipts: this, wasRemoved, append, onDamage }, segment, signal);
    this.#init.onRead(segment, count);
    return true;
  }

  #onDamage(damage: Damage): void {
    if (this.unread.isDamage(damage)) this.#damaged(damage);
  }

  #damaged(damage: Damage): void {
    // The records of a torn tail were not acknowledged.
    if (damage.what !== 'torn tail') this.#isDamaged = true;
    this.#init.onDamage(damage);
  }

  /** Lets the newest segment end if all of its receipts are too old: only ended segments are removed. */
  #rotateOld(oldest_ms: number): void {
    if (this.index.oldest!.segment === this.#log.active && this.index.oldest!.newest_ms < oldest_ms) this.#log.rotate();
  }

  /** Oldest first: a segment that cannot be removed now is tried again. */
  async #removeDropped(signal: AbortSignal): Promise<void> {
    while (this.#dropped.length > 0) {
      signal.throwIfAborted();
      const segment = this.#dropped[0]!;
      // Segments that hold batches only have no rows: they go with the next one that has.
      const rest = this.#log.files.numbers().filter((each) => each <= segment && !this.unread.has(each));
      for (const each of rest) await this.#log.remove(each).catch(ignoreMissing);
      this.#dropped.shift();
    }
  }
}

/** In Unix ms. */
const timeOf = (ulid: string): number => Buffer.from(ulidBytes(ulid)).readUIntBE(0, 6);

/** For a segment that retention has removed. */
export function ignoreMissing(error: unknown): void {
  if (!isRonError(error, 'not_found')) throw error;
}
