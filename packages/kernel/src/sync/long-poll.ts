/**
 * Long polls of a `Watch`: a client that knows the present value waits until there is another one.
 *
 * Contract: a client that does not know the value gets it at once. Otherwise it is held until there is a value that it does
 * not know, at most `hold_ms`. No change between the check and the wait is missed. The answer is `undefined` if there was
 * none: the time is over, the signal aborted, or the poll was closed.
 * Bound: `capacity` clients are held. Overflow: answered with `undefined` at once and counted; the client polls again.
 * Cancellation: by the signal of each poll. `close` answers every held client and holds none after that, so that a drain
 * does not wait for them.
 *
 *   const polls = new LongPoll({ capacity: 256, hold_ms: 1000, watch: revocations });
 *   const document = await polls.next((value) => value.version !== known, signal);
 */
import { Deadline } from '../time/deadline.ts';
import { assert } from '../errors.ts';
import { touch } from '../sched.ts';
import type { Watch } from '../channels/watch.ts';

export interface LongPollInit<T> {
  readonly capacity: number;
  readonly hold_ms: number;
  readonly watch: Watch<T>;
}

export class LongPoll<T> implements AsyncDisposable {
  readonly capacity: number;
  readonly #init: LongPollInit<T>;
  readonly #held = new Set<Deadline>();
  #closed = false;
  /** Polls that were not held because there was no room. */
  rejected_total = 0;

  constructor(init: LongPollInit<T>) {
    assert(
      Number.isSafeInteger(init.capacity) && init.capacity >= 1,
      'long poll: capacity is a whole number, at least 1',
    );
    assert(init.hold_ms > 0, 'long poll: the time is positive');
    this.capacity = init.capacity;
    this.#init = init;
  }

  /** Clients that are held. */
  get depth(): number {
    touch(this);
    return this.#held.size;
  }

  /** The first value that `isNew` accepts, beginning with the present one; undefined if there is none in time. */
  async next(isNew: (value: T) => boolean, signal: AbortSignal): Promise<T | undefined> {
    touch(this);
    const { watch, hold_ms } = this.#init;
    const receiver = watch.subscribe();
    if (isNew(receiver.value)) return receiver.value;
    if (this.#closed) return undefined;
    if (this.#held.size >= this.capacity) {
      this.rejected_total += 1;
      return undefined;
    }
    using hold = Deadline.after('hold', hold_ms, { signal });
    this.#held.add(hold);
    try {
      for (;;) {
        const value = await receiver.changed(hold.signal);
        if (isNew(value)) return value;
      }
    } catch {
      return undefined;
    } finally {
      touch(this);
      this.#held.delete(hold);
    }
  }

  /** Idempotent. */
  close(): void {
    touch(this);
    this.#closed = true;
    for (const hold of this.#held) hold.cancel();
  }

  [Symbol.asyncDispose](): Promise<void> {
    this.close();
    return Promise.resolve();
  }
}
