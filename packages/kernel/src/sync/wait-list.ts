/**
 * A first-in first-out list of callers that wait for one thing, each under its own AbortSignal. The channels are built
 * on it.
 *
 * Contract: a caller leaves the list in the step that decides its outcome (woken, timed out or aborted), so the three
 * never contradict each other, even if its continuation runs late.
 * Bound: as many waiters as there are callers that wait; admission bounds those. At most `FREE_MAX` idle waiter objects
 * are kept for reuse.
 * Cancellation: an abort takes the caller out of the list and rejects its promise with the signal's reason. A caller
 * that was already woken keeps its value.
 *
 * Adding and removing an abort listener for every wait costs more than the wait. So an idle waiter object keeps its
 * listener, and the next wait under the same signal takes that object again:
 *
 *   list:  head -> [waiter A, signal 1] -> [waiter B, signal 2] <- tail
 *   free:  [waiter C, signal 1] [waiter D, signal 3]          (listeners still registered; oldest is evicted first)
 *
 * The listeners of idle waiters go when they are evicted, and all of them when the list is closed.
 */
import { assert } from '../errors.ts';
import { sched, touch } from '../sched.ts';
import type { Parked, Timer } from '../sched.ts';
import { onAbort } from './on-abort.ts';

/** Idle waiter objects kept, with their listeners. More than the distinct signals that usually wait on one channel. */
const FREE_MAX = 16;

class Waiter<V, P> {
  readonly list: WaitList<V, P>;
  /** The signal that holds our listener; undefined when none does. */
  signal: AbortSignal | undefined;
  #registration: Disposable | undefined;
  parked: Parked<V> | undefined;
  payload: P | undefined;
  timer: Timer | undefined;
  older: Waiter<V, P> | undefined;
  newer: Waiter<V, P> | undefined;

  constructor(list: WaitList<V, P>) {
    this.list = list;
  }

  bind(signal: AbortSignal): void {
    this.unbind();
    this.signal = signal;
    this.#registration = onAbort(signal, this.#onAbort);
  }

  unbind(): void {
    this.#registration?.[Symbol.dispose]();
    this.signal = undefined;
  }

  readonly #onAbort = (reason: unknown): void => {
    this.signal = undefined;
    if (this.parked !== undefined) this.list.fail(this, reason);
  };
}

export interface WaitListInit<V, P> {
  /** The primitive whose state this list is part of; it is the object that steps touch. */
  owner: object;
  /** Names the wait in explorer traces. */
  label: string;
  /** The value for a caller whose time limit passed. Needed only if `park` is given `wait_ms`. */
  expired?: (payload: P) => V;
}

export class WaitList<V, P> {
  readonly #owner: object;
  readonly #label: string;
  readonly #expired: ((payload: P) => V) | undefined;
  readonly #free: Waiter<V, P>[] = [];
  #head: Waiter<V, P> | undefined;
  #tail: Waiter<V, P> | undefined;
  #size = 0;
  #closed = false;

  constructor(init: WaitListInit<V, P>) {
    this.#owner = init.owner;
    this.#label = init.label;
    this.#expired = init.expired;
  }

  get size(): number {
    return this.#size;
  }

  /** Waits at the end of the list, at most `wait_ms` when it is given. The signal must not be aborted yet. */
  park(signal: AbortSignal, payload: P, wait_ms?: number): Promise<V> {
    assert(!this.#closed, 'a closed list takes no waiters');
    // [storage I-5] [kms I-5] [index I-5] [edge I-5] [interop I-5] Every wait of the primitives ends here: by a wake, the signal or the time.
    const waiter = this.#acquire(signal);
    const parked = sched.park<V>(this.#label);
    waiter.parked = parked;
    waiter.payload = payload;
    waiter.older = this.#tail;
    if (this.#tail === undefined) this.#head = waiter;
    else this.#tail.newer = waiter;
    this.#tail = waiter;
    this.#size += 1;
    if (wait_ms !== undefined) waiter.timer = sched.timer(wait_ms, () => this.#expire(waiter), this.#label);
    return parked.promise;
  }

  /** The payload of the first waiter. There must be one. */
  peek(): P {
    assert(this.#head !== undefined, 'a caller waits');
    return this.#head.payload as P;
  }

  /** Takes the first waiter out and gives it `value`. There must be one. */
  wakeFirst(value: V): void {
    assert(this.#head !== undefined, 'a caller waits');
    this.#release(this.#head).wake(value);
  }

  /** Takes out and rejects every waiter that `which` chooses; all of them without it. */
  failAll(error: unknown, which?: (payload: P) => boolean): void {
    let waiter = this.#head;
    while (waiter !== undefined) {
      const { newer } = waiter;
      if (which === undefined || which(waiter.payload as P)) this.#release(waiter).fail(error);
      waiter = newer;
    }
  }

  /** For the abort listener. */
  fail(waiter: Waiter<V, P>, reason: unknown): void {
    touch(this.#owner);
    this.#release(waiter).fail(reason);
  }

  /** Removes every listener. The owner has answered all waiters and adds none afterwards. */
  close(): void {
    assert(this.#size === 0, 'a list is closed without waiters');
    this.#closed = true;
    for (const waiter of this.#free) waiter.unbind();
    this.#free.length = 0;
  }

  #expire(waiter: Waiter<V, P>): void {
    touch(this.#owner);
    assert(this.#expired !== undefined, 'a wait with a time needs `expired`');
    const value = this.#expired(waiter.payload as P);
    this.#release(waiter).wake(value);
  }

  #acquire(signal: AbortSignal): Waiter<V, P> {
    const free = this.#free;
    for (let index = free.length - 1; index >= 0; index -= 1) {
      const waiter = free[index];
      if (waiter === undefined || waiter.signal !== signal) continue;
      if (index === free.length - 1) free.pop();
      else free.splice(index, 1);
      return waiter;
    }
    const oldest = free.length >= FREE_MAX ? free.shift() : undefined;
    const waiter = oldest ?? new Waiter(this);
    waiter.bind(signal);
    return waiter;
  }

  /** Takes a waiter out of the list and keeps the object for reuse. The caller wakes or fails the result exactly once. */
  #release(waiter: Waiter<V, P>): Parked<V> {
    const { parked, older, newer } = waiter;
    assert(parked !== undefined, 'a waiter leaves its list once');
    if (older === undefined) this.#head = newer;
    else older.newer = newer;
    if (newer === undefined) this.#tail = older;
    else newer.older = older;
    this.#size -= 1;
    waiter.timer?.cancel();
    waiter.timer = undefined;
    waiter.older = undefined;
    waiter.newer = undefined;
    waiter.payload = undefined;
    waiter.parked = undefined;
    if (this.#free.length >= FREE_MAX) this.#free.shift()?.unbind();
    this.#free.push(waiter);
    return parked;
  }
}
