/**
 * Runs one critical section at a time, in the order of arrival. For sections that await; a section that does not belongs
 * in a `Cell`.
 *
 * Contract: two sections never overlap, and no caller overtakes another: a section that ends hands the mutex to the first
 * waiter in the same step. After `close` new callers are refused with `closed`; callers that already waited are still
 * served, and `close` resolves when the last section has ended.
 * Bound: `waiters_max` waiting callers. Overflow: `busy`, at once.
 * Cancellation: an aborted waiter leaves with the signal's reason and its section never begins. A section that has begun
 * runs to its end.
 *
 *     const appends = new Mutex('log.append', { waiters_max: 1024 });
 *     const { first } = await appends.run(signal, async () => {
 *       await file.write(frame);
 *       return { first: count++ };
 *     });
 */
import { assert, RonError } from '../errors.ts';
import { NEVER } from './never.ts';
import { touch } from '../sched.ts';
import { WaitList } from './wait-list.ts';

const RETRY_AFTER_MS = 1000;

export interface MutexInit {
  waiters_max: number;
}

export class Mutex implements AsyncDisposable {
  readonly name: string;
  readonly #waiters_max: number;
  readonly #waiters: WaitList<void, undefined>;
  /** Callers of `close` that wait for the last section. */
  readonly #closers: WaitList<void, undefined>;
  #isHeld = false;
  #isClosed = false;

  constructor(name: string, { waiters_max }: MutexInit) {
    assert(Number.isSafeInteger(waiters_max) && waiters_max >= 0, `mutex ${name}: waiters_max is a whole number`);
    this.name = name;
    this.#waiters_max = waiters_max;
    this.#waiters = new WaitList({ owner: this, label: `${name}.lock` });
    this.#closers = new WaitList({ owner: this, label: `${name}.close` });
  }

  get isHeld(): boolean {
    touch(this);
    return this.#isHeld;
  }

  get waiters(): number {
    touch(this);
    return this.#waiters.size;
  }

  /** Whether the next caller is refused with `busy`. */
  get isFull(): boolean {
    touch(this);
    return this.#isHeld && this.#waiters.size >= this.#waiters_max;
  }

  async run<T>(signal: AbortSignal, section: () => Promise<T>): Promise<T> {
    touch(this);
    signal.throwIfAborted();
    if (this.#isClosed) throw new RonError('closed', `${this.name} is closed`);
    // [storage I-1] [kms I-1] [index I-1] [edge I-1] [interop I-1] Sections await, so this orders operations and guards no state: readers never take it, and
    // waiters are bounded and leave by their signal.
    if (this.#isHeld) await this.#wait(signal);
    this.#isHeld = true;
    try {
      // It may have been aborted after the hand-over; the mutex then passes on.
      signal.throwIfAborted();
      return await section();
    } finally {
      this.#handOver();
    }
  }

  /** Refuses new callers and waits until the last section has ended. The signal ends only this wait. Idempotent. */
  async close(signal: AbortSignal = NEVER): Promise<void> {
    touch(this);
    this.#isClosed = true;
    if (!this.#isHeld) return this.#waiters.close();
    signal.throwIfAborted();
    await this.#closers.park(signal, undefined);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #wait(signal: AbortSignal): Promise<void> {
    if (this.isFull) {
      const message = `${this.name}: ${this.#waiters.size} callers already wait`;
      throw new RonError('busy', message, { retry_after_ms: RETRY_AFTER_MS });
    }
    await this.#waiters.park(signal, undefined);
  }

  /** The mutex stays held while it changes hands, so that no newcomer takes it in between. */
  #handOver(): void {
    touch(this);
    if (this.#waiters.size > 0) return this.#waiters.wakeFirst();
    this.#isHeld = false;
    if (!this.#isClosed) return;
    this.#waiters.close();
    while (this.#closers.size > 0) this.#closers.wakeFirst();
    this.#closers.close();
  }
}
