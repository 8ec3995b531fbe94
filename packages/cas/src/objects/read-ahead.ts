/**
 * Adaptive read-ahead: decides how many chunks a reader of an object fetches at once.
 *
 * Contract: a reader starts with one chunk. Its window doubles while the client takes a window within `KEEPS_UP_MS`, up to
 * `WINDOW_BYTES_MAX`, and falls back to one chunk when the client takes longer than `FALLS_BEHIND_MS`.
 * Bound: all windows together hold `AHEAD_BYTES_MAX` beyond one chunk per reader. Overflow: readers get smaller windows, at
 * least one chunk.
 */
import { sched } from '@ron/kernel';

const WINDOW_BYTES_MAX = 1024 * 1024;
const AHEAD_BYTES_MAX = 12 * 1024 * 1024;
const KEEPS_UP_MS = 50;
const FALLS_BEHIND_MS = 500;

/** Memory for read-ahead, shared by all readers of the process. */
let ahead_bytes = 0;

/** For tests and metrics. */
export const readAheadBytes = (): number => ahead_bytes;

export class ReadWindow implements Disposable {
  readonly #chunk_bytes: number;
  readonly #chunks_max: number;
  #wanted = 1;
  #held_bytes = 0;
  #given_ms = 0;
  #waited_ms = 0;

  constructor(chunk_bytes: number) {
    this.#chunk_bytes = chunk_bytes;
    this.#chunks_max = Math.max(1, Math.floor(WINDOW_BYTES_MAX / chunk_bytes));
  }

  /** The window that it would fetch next if there is memory for it, in chunks. */
  get wanted(): number {
    return this.#wanted;
  }

  /** How many of the next `left` chunks to fetch. The chunks of the previous window are no longer in use. */
  next(left: number): number {
    this.#return();
    let count = Math.min(left, this.#wanted);
    while (count > 1 && ahead_bytes + (count - 1) * this.#chunk_bytes > AHEAD_BYTES_MAX) count = Math.floor(count / 2);
    this.#held_bytes = (count - 1) * this.#chunk_bytes;
    ahead_bytes += this.#held_bytes;
    this.#waited_ms = 0;
    return count;
  }

  /** A batch of the window goes to the client. */
  given(): void {
    this.#given_ms = sched.now_ms();
  }

  /** The client requests more. */
  taken(): void {
    this.#waited_ms += sched.now_ms() - this.#given_ms;
    if (this.#waited_ms > FALLS_BEHIND_MS) this.#wanted = 1;
  }

  /** All of the window was taken. */
  ended(): void {
    if (this.#waited_ms <= KEEPS_UP_MS) this.#wanted = Math.min(this.#chunks_max, this.#wanted * 2);
  }

  [Symbol.dispose](): void {
    this.#return();
  }

  #return(): void {
    ahead_bytes -= this.#held_bytes;
    this.#held_bytes = 0;
  }
}
