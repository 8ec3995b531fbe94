/**
 * Whether the disk of a mailbox accepts messages.
 *
 * Contract: messages that would use the reserve of the disk are refused; other records may use it, leases and returns only its
 * first quarter: a settlement must fit, or a full queue could not be emptied. `problem` states why messages are refused now,
 * or that some cannot be read. A failure counts until an append succeeds, a refusal for lack of space until its bytes fit, a
 * place that cannot be read until it can. Each change is reported once.
 */
import { isRonError, RonError } from '@ron/kernel';
import { recordBytes, type Position, type Reserve } from '@ron/log';
import { META_BYTES_MIN } from './codec/message-codec.ts';

export type DiskEvent =
  | { readonly kind: 'disk full'; readonly problem: string }
  | { readonly kind: 'disk failed'; readonly problem: string }
  | { readonly kind: 'disk recovered' };

/** The record of an empty message: a disk without room for it refuses every send. */
const MESSAGE_RECORD_BYTES_MIN = recordBytes(0, META_BYTES_MIN);
/** Of the reserve, for leases and returns. The rest has room for the moves of a segment and for settlements. */
const LEASE_SHARE = 1 / 4;
const FULL_RETRY_MS = 1000;
const FULL = 'the disk is full';

export class DiskCondition {
  readonly #reserve: Reserve;
  readonly #onEvent: (event: DiskEvent) => void;
  /** The size of the messages that were refused last; the smallest size once there is room for them. */
  #refused_bytes = MESSAGE_RECORD_BYTES_MIN;
  /** Of messages that are being written. */
  #pending_bytes = 0;
  #isReportedFull = false;
  #failure: string | undefined;
  #unreadable: { readonly at: Position; readonly problem: string } | undefined;

  constructor(reserve: Reserve, onEvent: (event: DiskEvent) => void) {
    this.#reserve = reserve;
    this.#onEvent = onEvent;
  }

  /** Why the last append failed; undefined if it succeeded. */
  get failure(): string | undefined {
    return this.#failure;
  }

  /** Why messages are refused, or that one cannot be read; undefined if there is no problem. */
  get problem(): string | undefined {
    return this.#failure ?? (this.isFull ? FULL : this.#unreadable?.problem);
  }

  /** A place that could not be read. */
  get unreadable(): Position | undefined {
    return this.#unreadable?.at;
  }

  /** Whether messages are refused because the free space is down to the reserve. */
  get isFull(): boolean {
    const isReached = this.#reserve.isReached(this.#refused_bytes);
    if (!isReached) {
      this.#refused_bytes = MESSAGE_RECORD_BYTES_MIN;
      this.#isReportedFull = false;
    }
    return isReached;
  }

  /** Whether this many bytes more would use the part of the reserve that only settlements and compaction may use. */
  isShort(bytes: number): boolean {
    return this.#reserve.isReached(bytes - this.#reserve.bytes * LEASE_SHARE);
  }

  /** Why messages of this many bytes are refused now; undefined if they are not. */
  refusal(bytes: number): RonError | undefined {
    // [mailbox I-10] Only messages leave the reserve alone.
    if (!this.#reserve.isReached(this.#pending_bytes + bytes)) return undefined;
    this.#refused_bytes = bytes;
    if (!this.#isReportedFull) this.#onEvent({ kind: 'disk full', problem: FULL });
    this.#isReportedFull = true;
    return new RonError('storage_full', FULL, { retry_after_ms: FULL_RETRY_MS });
  }

  /** Messages that are being written until it is disposed of: concurrent sends do not use the same space. */
  pend(bytes: number): Disposable {
    this.#pending_bytes += bytes;
    return { [Symbol.dispose]: () => void (this.#pending_bytes -= bytes) };
  }

  /** An append of this many bytes succeeded. */
  wrote(bytes: number): void {
    this.#reserve.wrote(bytes);
    if (this.#failure === undefined) return;
    this.#failure = undefined;
    this.#onEvent({ kind: 'disk recovered' });
  }

  /** The record at a place cannot be read. */
  readFailed(at: Position, cause: string): void {
    if (this.#unreadable !== undefined) return;
    const problem = `segment ${at.segment} cannot be read at ${at.offset}: ${cause}`;
    this.#unreadable = { at, problem };
    this.#onEvent({ kind: 'disk failed', problem });
  }

  /** The place can be read again, or is not needed any more. */
  readAgain(): void {
    this.#unreadable = undefined;
    this.#onEvent({ kind: 'disk recovered' });
  }

  /** An append failed; errors that are not the disk's are ignored. */
  failed(error: unknown): void {
    if (!isRonError(error, 'not_ready') && !isRonError(error, 'storage_full')) return;
    if (this.#failure !== error.message) this.#onEvent({ kind: 'disk failed', problem: error.message });
    this.#failure = error.message;
  }
}
