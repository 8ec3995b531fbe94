/**
 * One at a time, in the order of arrival.
 *
 * Promise: two works never overlap and nobody overtakes. A turn that ends is handed to the first who waits, in the same
 * moment. After `close` nobody new is let in; who waited is still served, and `close` resolves when all have ended.
 * Bound: `waiting_max` callers wait. Overflow: `busy`, at once.
 * Cancellation: who waits leaves by its signal and its work was not begun; a work that has begun ends by itself.
 */
import { RonError, sched, touch, WaitList, type Parked } from '@ron/kernel';

const RETRY_AFTER_MS = 1000;

export class InTurn {
  readonly #name: string;
  readonly #waiting_max: number;
  readonly #waiting: WaitList<void, undefined>;
  readonly #closing: Parked<void>[] = [];
  #isTaken = false;
  #isClosed = false;

  constructor(name: string, waiting_max: number) {
    this.#name = name;
    this.#waiting_max = waiting_max;
    this.#waiting = new WaitList({ owner: this, label: `${name}.turn` });
  }

  async run<T>(signal: AbortSignal, work: () => Promise<T>): Promise<T> {
    touch(this);
    signal.throwIfAborted();
    if (this.#isClosed) throw new RonError('closed', `${this.#name} is closed`);
    if (this.#isTaken) await this.#wait(signal);
    this.#isTaken = true;
    try {
      return await work();
    } finally {
      this.#handOver();
    }
  }

  /** Lets nobody in any more, and waits for those who are. */
  async close(): Promise<void> {
    touch(this);
    this.#isClosed = true;
    if (!this.#isTaken) return this.#waiting.close();
    const parked = sched.park<void>(`${this.#name}.close`);
    this.#closing.push(parked);
    await parked.promise;
  }

  async #wait(signal: AbortSignal): Promise<void> {
    if (this.#waiting.size >= this.#waiting_max) {
      const message = `${this.#name}: ${this.#waiting.size} wait for their turn`;
      throw new RonError('busy', message, { retry_after_ms: RETRY_AFTER_MS });
    }
    await this.#waiting.park(signal, undefined);
  }

  #handOver(): void {
    touch(this);
    if (this.#waiting.size > 0) return this.#waiting.wakeFirst();
    this.#isTaken = false;
    if (!this.#isClosed) return;
    this.#waiting.close();
    for (const parked of this.#closing.splice(0)) parked.wake();
  }
}
