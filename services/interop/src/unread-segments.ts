/**
 * The segments of a log with a part that the disk could not read, at the start or later. They are read again until that succeeds.
 *
 * Contract: an unread segment may have any record, so its file is kept: the owner of the log removes it only once it was read,
 * or in a later process. Gaps in it are no damage, because the unread part may explain them.
 * Bound: one number for each segment. `ReadBackoff` between two tries. Cancellation: by the signal.
 */
import { touch } from '@ron/kernel';
import type { Damage } from '@ron/log';
import { ReadBackoff } from './read-backoff.ts';

export class UnreadSegments {
  readonly #numbers = new Set<number>();
  readonly #backoff = new ReadBackoff();

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
    return this.size === 0 ? Infinity : this.#backoff.wait_ms;
  }

  /** Tries each segment, oldest first. `read` rejects if the disk cannot read it, and resolves with false to be called again. */
  async tryAll(read: (segment: number) => Promise<boolean>, signal: AbortSignal): Promise<void> {
    for (const segment of [...this.#numbers].toSorted((a, b) => a - b)) {
      if (!(await isRead(read, segment, signal))) continue;
      touch(this);
      this.#numbers.delete(segment);
    }
    this.#backoff.failed();
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
