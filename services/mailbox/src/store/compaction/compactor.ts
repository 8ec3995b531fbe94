/**
 * Gives back the space of settled messages, the oldest segment first.
 *
 * Only the oldest segment is ever removed: a settlement must outlive the message records before it. A segment is due when it
 * holds no live message, or when more than half of the log is settled; a remembered idempotency key counts as live. On a disk
 * with little space for settlements, an eighth of the reserve in dead records is enough, such as leases.
 *
 * The task also keeps the end mark of the log (end-mark.ts) up to date.
 *
 * Contract: a message that is live stays in the log at every moment, and a segment without an intact `base` does not become
 * the oldest one: it is compacted together with the segment before it. A kill between the two removals leaves it the oldest:
 * no message is lost, but the next start reports it, and the operator must accept. The ledger is checked after each compaction.
 * A failure is reported and retried after a backoff of `BACKOFF_MS_MIN` to `BACKOFF_MS_MAX`. On a full disk a segment is only
 * compacted if the moves leave a part of the reserve for acks.
 * Bound: one segment at a time, in steps (segment-compaction.ts). Cancellation: by the signal, between two steps.
 */
import { RonError, sched, sleep } from '@ron/kernel';
import { SEEN_BYTES } from '../codec/entry-codec.ts';
import { SegmentCompaction, type CompactedSegment, type DamagedLetter } from './segment-compaction.ts';
import type { LedgerProblem } from '../ledger/problems.ts';
import type { LiveMessages } from './live-messages.ts';
import type { MailboxLog } from '../mailbox-log.ts';

export type CompactorEvent =
  | ({ readonly kind: 'segment removed' } & CompactedSegment)
  | ({ readonly kind: 'message damaged' } & DamagedLetter)
  | { readonly kind: 'log damaged'; readonly problem: string }
  | { readonly kind: 'compaction failed'; readonly problem: string }
  | { readonly kind: 'ledger broken'; readonly problem: LedgerProblem };

export interface CompactorInit {
  log: MailboxLog;
  live: LiveMessages;
  onEvent: (event: CompactorEvent) => void;
}

const INTERVAL_MS = 250;
const BACKOFF_MS_MIN = 1000;
const BACKOFF_MS_MAX = 60_000;
/** Of the reserve: left free by compaction. */
const KEPT_SHARE = 1 / 8;
/** Of the reserve: dead records that are worth a compaction when space is short. */
const WORTH_SHARE = 1 / 8;
/** A smaller segment is not closed early. */
const ROTATE_BYTES_MIN = 256 * 1024;

export class Compactor {
  readonly #init: CompactorInit;

  constructor(init: CompactorInit) {
    this.#init = init;
  }

  /** The loop of the task `compactor`; rejects when the signal aborts. */
  async run(signal: AbortSignal): Promise<void> {
    let failures = 0;
    for (;;) {
      try {
        await this.pass(signal);
        failures = 0;
      } catch (error) {
        signal.throwIfAborted();
        failures += 1;
        const problem = error instanceof Error ? error.message : String(error);
        this.#init.onEvent({ kind: 'compaction failed', problem });
      }
      await this.#init.log.noteEnd();
      await sleep(failures === 0 ? INTERVAL_MS : backoff_ms(failures), signal, 'compactor');
    }
  }

  /** Compacts segments until none is due, each at most once. */
  async pass(signal: AbortSignal): Promise<void> {
    for (let left = this.#init.log.segments.files.numbers().length; left > 0 && this.#isDue(); left--) {
      this.#requireRoom();
      await this.compactOldest(signal);
      // The removed segment counts as free for the next one.
      await this.#init.log.reserve.measure();
    }
  }

  /** Compacts the oldest segment even if it is not due; the one being written is closed first. False if there is none. */
  async compactOldest(signal: AbortSignal): Promise<boolean> {
    const { log, live, onEvent } = this.#init;
    const onDamaged = (letter: DamagedLetter): void => onEvent({ kind: 'message damaged', ...letter });
    if (log.problem !== undefined) return false;
    const segments = await this.#oldest(signal);
    if (segments === undefined) return false;
    const compacted: CompactedSegment[] = [];
    for (const segment of segments) {
      compacted.push(await new SegmentCompaction({ log, live, onDamaged }, segment, signal).run());
    }
    for (const each of compacted) {
      await log.remove(each.segment);
      onEvent({ kind: 'segment removed', ...each });
    }
    // [mailbox I-8] The ledger holds after each compaction.
    const problem = log.check();
    if (problem !== undefined) onEvent({ kind: 'ledger broken', problem });
    return true;
  }

  /**
   * The oldest segment, and the next ones if their `base` is damaged: their records cannot be read without the segments
   * before them. Undefined if there is none, or no later segment has a `base`.
   */
  async #oldest(signal: AbortSignal): Promise<readonly number[] | undefined> {
    const { log, onEvent } = this.#init;
    const [oldest] = log.segments.files.numbers();
    if (oldest === undefined) return undefined;
    const segments = [oldest];
    // A failed rotation may have left no segment, or an empty one.
    for (let after = oldest, isRotated = false; ;) {
      const next = log.nextOf(after);
      if (next === undefined && isRotated) return undefined;
      if (next === undefined) {
        await log.rotate(signal);
        isRotated = true;
        continue;
      }
      if (await log.hasBase(next)) return segments;
      onEvent({ kind: 'log damaged', problem: `the base of segment ${next} is damaged: its messages move` });
      segments.push(next);
      after = next;
    }
  }

  #isDue(): boolean {
    const { log, live } = this.#init;
    if (log.problem !== undefined) return false;
    const { files } = log.segments;
    const [oldest] = files.numbers();
    if (oldest === undefined) return false;
    const { bytes } = files.totals();
    const settled = bytes - live.live_bytes - live.seen_keys * SEEN_BYTES;
    const worth_bytes = log.reserve.bytes * WORTH_SHARE;
    // Before leases stop being written.
    const isWorthMoving =
      settled > bytes / 2 ||
      (settled > worth_bytes && log.disk.isShort(worth_bytes) && this.#missingRoom() === undefined);
    // The segment being written is only closed early if the disk needs its space.
    if (!log.isSummarized(oldest)) return isWorthMoving && bytes > ROTATE_BYTES_MIN && log.disk.isFull;
    return isWorthMoving || (live.liveBytesOf(oldest) === 0 && !log.hasKeys(oldest));
  }

  #requireRoom(): void {
    const missing = this.#missingRoom();
    if (missing !== undefined) throw new RonError('storage_full', `the disk is full: ${missing}`);
  }

  /** Why the moves would not leave room for acks, which free more space later; undefined if they do. */
  #missingRoom(): string | undefined {
    const { log, live } = this.#init;
    const [oldest] = log.segments.files.numbers();
    const needed = oldest === undefined ? 0 : live.liveBytesOf(oldest);
    const { free_bytes, bytes } = log.reserve;
    if (needed === 0 || free_bytes - needed >= bytes * KEPT_SHARE) return undefined;
    return `compaction needs ${needed} bytes, ${free_bytes} are free`;
  }
}

const backoff_ms = (failures: number): number =>
  Math.min(BACKOFF_MS_MAX, BACKOFF_MS_MIN * 2 ** (failures - 1)) * (0.75 + sched.random() / 2);
