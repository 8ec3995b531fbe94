/**
 * A semaphore by cost whose waiters take turns by key: limits the work in progress, for example in a pool of threads.
 *
 * Contract: work begins while the cost in progress is below `limit`; so it exceeds the limit by less than the cost of one
 * call. Calls beyond that wait and begin in the order of `FairQueue`: a key with a flood of calls delays another by a few
 * turns, not by all of its calls. No permit is lost, however a call ends. Every call is answered once: with the outcome
 * of its work, or with the reason why that did not begin.
 * Bound: `capacity` calls wait, and one key takes at most as many places as it leaves free. Overflow: beyond that, a call
 * of a key that waits with at least two calls fewer than the longest key displaces the newest call of that one, which is
 * answered with `busy`; every other call is refused with `busy`. So keys with floods refuse nothing to another key.
 * Cancellation: a call that waits leaves when its signal aborts. `close` refuses new calls and rejects those that wait
 * with `draining`; work in progress goes on.
 *
 *   const semaphore = new FairSemaphore('verify', { limit: 8000, quantum: 400, capacity: 512, keys_max: 256 });
 *   const good = await semaphore.run(tenant, cost_us, signal, () => threads.verify(checks, signal));
 */
import { assert, RonError } from '../errors.ts';
import { sched, touch, type Parked } from '../sched.ts';
import { onAbort } from '../sync/on-abort.ts';
import { FairEntry, FairQueue, type FairQueueInit } from './fair-queue.ts';

export interface FairSemaphoreInit extends FairQueueInit {
  /** Cost in progress from which calls wait. */
  readonly limit: number;
}

class Waiter extends FairEntry {
  readonly parked: Parked<void>;
  registration: Disposable | undefined;

  constructor(cost: number, label: string) {
    super(cost);
    this.parked = sched.park(label);
  }
}

export class FairSemaphore implements AsyncDisposable {
  readonly name: string;
  readonly #limit: number;
  readonly #waiters: FairQueue<Waiter>;
  #in_progress = 0;
  #closed = false;
  /** Calls answered with `busy`. */
  busy_total = 0;

  constructor(name: string, init: FairSemaphoreInit) {
    assert(init.limit > 0, `semaphore ${name}: the limit is positive`);
    this.name = name;
    this.#limit = init.limit;
    this.#waiters = new FairQueue(init);
  }

  /** Calls that wait. */
  get depth(): number {
    touch(this);
    return this.#waiters.size;
  }

  /** Cost of the work in progress. */
  get in_progress(): number {
    touch(this);
    return this.#in_progress;
  }

  /** Rejects with `busy`, `draining`, the signal's reason, or the error of the work. */
  async run<A>(key: string, cost: number, signal: AbortSignal, work: () => Promise<A>): Promise<A> {
    touch(this);
    assert(cost >= 0 && Number.isFinite(cost), `semaphore ${this.name}: the cost is a finite number, at least 0`);
    signal.throwIfAborted();
    if (this.#closed) throw this.#draining();
    // While there is room no call waits: those that did were let in when it became free.
    if (this.#hasRoom) this.#in_progress += cost;
    else await this.#wait(key, cost, signal);
    try {
      // It may have been aborted after the permit was passed to it.
      signal.throwIfAborted();
      return await work();
    } finally {
      this.#release(cost);
    }
  }

  /** Idempotent. */
  close(): void {
    touch(this);
    this.#closed = true;
    for (const waiter of this.#waiters.entries()) this.#leave(waiter).fail(this.#draining());
  }

  [Symbol.asyncDispose](): Promise<void> {
    this.close();
    return Promise.resolve();
  }

  get #hasRoom(): boolean {
    return this.#in_progress < this.#limit;
  }

  #wait(key: string, cost: number, signal: AbortSignal): Promise<void> {
    if (!this.#waiters.admits(key, 1)) this.#displaceFor(key);
    const waiter = new Waiter(cost, `${this.name}.permit`);
    waiter.registration = onAbort(signal, (reason) => {
      touch(this);
      this.#leave(waiter).fail(reason);
    });
    this.#waiters.push(key, waiter);
    return waiter.parked.promise;
  }

  /** Takes out the newest call of the longest key in favour of a shorter one; throws `busy` if there is none. */
  #displaceFor(key: string): void {
    this.busy_total += 1;
    const longest = this.#waiters.displaceable(key);
    const busy = new RonError('busy', `semaphore ${this.name} has no room for this key`, { op: this.name });
    if (longest === undefined) throw busy;
    this.#leave(longest).fail(busy);
  }

  /** The permit passes to the next waiters here and not when they run, so that no other call takes it in between. */
  #release(cost: number): void {
    touch(this);
    this.#in_progress -= cost;
    while (this.#hasRoom) {
      const waiter = this.#waiters.peek();
      if (waiter === undefined) return;
      this.#waiters.take(waiter);
      waiter.registration?.[Symbol.dispose]();
      this.#in_progress += waiter.cost;
      waiter.parked.wake();
    }
  }

  #leave(waiter: Waiter): Parked<void> {
    this.#waiters.remove(waiter);
    waiter.registration?.[Symbol.dispose]();
    return waiter.parked;
  }

  #draining(): RonError {
    return new RonError('draining', `semaphore ${this.name} takes no more work`);
  }
}
