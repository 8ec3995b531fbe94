/**
 * The segments of a log with a part that the disk could not read at the start. They are read again until that succeeds.
 *
 * Contract: an unread segment may have any record, so its file is kept: the owner of the log removes it only once it was read,
 * or in a later process. Gaps in it are no damage, because the unread part may explain them.
 * Bound: one number for each segment. Tries wait up to `BACKOFF_MS_MAX`. Cancellation: by the signal.
 */
import { jittered, sched, touch } from '@ron/kernel';
import type { Damage } from '@ron/log';

const BACKOFF_MS_MAX = 60_000;
const backoff = jittered({ tries_max: Infinity, from_ms: 500, to_ms: 1000, factor: 2, cap_ms: BACKOFF_MS_MAX });
/** Further failures do not lengthen the wait. */
const FAILURES_MAX = 8;

export class UnreadSegments {
  readonly #numbers = new Set<number>();
  #failures = 0;
  #due_ms = 0;

  /** Whether the bytes were read and are damaged. An unreadable part makes its segment unread. */
  isDamage({ what, segment }: Damage): boolean {
    if (what === 'unreadable part') this.#numbers.add(segment);
    return !this.#numbers.has(segment);
  }

  /** The disk could not read a part of it later. */
  add(segment: number): void {
    touch(this);
    this.#numbers.add(segment);
  }

  has(segment: number): boolean {
    touch(this);
    return this.#numbers.has(segment);
  }

  get size(): number {
    touch(this);
    return this.#numbers.size;
  }

  /** Their bytes on disk. */
  bytesIn(files: { bytesOf(segment: number): number }): number {
    let bytes = 0;
    for (const segment of this.#numbers) bytes += files.bytesOf(segment);
    return bytes;
  }

  /** Why records are missing; undefined if none are. */
  get problem(): string | undefined {
    if (this.size === 0) return undefined;
    return `the disk cannot read a part of segment ${[...this.#numbers].join(', ')}`;
  }

  /** How long until they are tried again; Infinity if there are none. */
  get wait_ms(): number {
    return this.size === 0 ? Infinity : Math.max(0, this.#due_ms - sched.now_ms());
  }

  /** Tries each segment, oldest first. `read` rejects if the disk cannot read it, and resolves with false to be called again. */
  async tryAll(read: (segment: number) => Promise<boolean>, signal: AbortSignal): Promise<void> {
    for (const segment of [...this.#numbers].toSorted((a, b) => a - b)) {
      if (!(await isRead(read, segment, signal))) continue;
      touch(this);
      this.#numbers.delete(segment);
    }
    this.#due_ms = sched.now_ms() + backoff.backoff_ms(this.#failures);
    this.#failures = Math.min(FAILURES_MAX, this.#failures + 1);
  }
}

async function isRead(
  read: (segment: number) => Promise<boolean>,
  segment: number,
  signal: AbortSignal,
): Promise<boolean> {
  try {
    return await read(segment);
  } catch (error) {
    if (signal.aborted) throw error;
    return false;
  }
}
