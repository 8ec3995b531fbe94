/**
 * One value that changes, and receivers that wait for changes.
 *
 * Contract: the last write wins. `changed` resolves with the latest value that its receiver has not seen; a change between
 * two calls is never missed, it makes the next call resolve at once. Several changes in between are seen as one.
 * The answer is the latest value when the promise resolves. A `set` that runs in the same turn of the event loop, before
 * the caller's continuation, is not in that answer and makes the next `changed` resolve at once.
 * Bound: one value; one waiter for each `changed` that waits.
 * Overflow: a newer value replaces the older one.
 * Cancellation: `changed` rejects with the signal's reason and marks nothing as seen. After `close` a change that was
 * not seen yet is still given, then `changed` rejects with `closed`.
 */
import { RonError } from '../errors.ts';
import { touch } from '../sched.ts';
import { WaitList } from '../sync/wait-list.ts';

/** Shared by a Watch and its receivers. */
interface State<T> {
  readonly name: string;
  value: T;
  /** Counts the changes, from 0 for the initial value. */
  version: number;
  closed: boolean;
  readonly waiters: WaitList<void, WatchReceiver<T>>;
}

export class Watch<T> implements AsyncDisposable {
  readonly name: string;
  readonly #state: State<T>;

  constructor(name: string, initial: T) {
    this.name = name;
    const label = `${name}.changed`;
    this.#state = { name, value: initial, version: 0, closed: false, waiters: new WaitList({ owner: this, label }) };
  }

  get value(): T {
    touch(this);
    return this.#state.value;
  }

  /** Each call counts as a change, also one that sets the same value again. */
  set(value: T): void {
    touch(this);
    const state = this.#state;
    if (state.closed) throw closedError(this.name);
    // [storage I-3] [kms I-3] [index I-3] [edge I-3] [interop I-3] One value: the last write wins.
    state.value = value;
    state.version += 1;
    while (state.waiters.size > 0) state.waiters.wakeFirst();
  }

  /** A receiver that has seen the present value and nothing later. It costs the watch nothing while it does not wait. */
  subscribe(): WatchReceiver<T> {
    touch(this);
    return new WatchReceiver(this, this.#state);
  }

  /** Idempotent. The value can still be read. */
  close(): void {
    touch(this);
    const state = this.#state;
    if (state.closed) return;
    state.closed = true;
    state.waiters.failAll(closedError(this.name));
    state.waiters.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    this.close();
    return Promise.resolve();
  }
}

export class WatchReceiver<T> implements AsyncDisposable {
  readonly #watch: object;
  readonly #state: State<T>;
  #seen_version: number;
  #closed = false;

  /** Made by `Watch.subscribe`. */
  constructor(watch: object, state: State<T>) {
    this.#watch = watch;
    this.#state = state;
    this.#seen_version = state.version;
  }

  /** The latest value. Looking does not mark it as seen. */
  get value(): T {
    touch(this.#watch);
    return this.#state.value;
  }

  /** Waits until there is a value that this receiver has not seen, and gives the latest. */
  changed(signal: AbortSignal): Promise<T> {
    touch(this.#watch);
    const state = this.#state;
    if (signal.aborted) return Promise.reject(signal.reason);
    if (this.#closed) return Promise.reject(closedError(state.name));
    if (this.#seen_version !== state.version) return Promise.resolve(this.#see());
    if (state.closed) return Promise.reject(closedError(state.name));
    // The value is read when the waiter runs, not when it was woken: another change may have come in between.
    return state.waiters.park(signal, this).then(() => this.#see());
  }

  /** Idempotent. Waits of this receiver reject with `closed`; the watch and its other receivers go on. */
  close(): void {
    touch(this.#watch);
    if (this.#closed) return;
    this.#closed = true;
    this.#state.waiters.failAll(closedError(this.#state.name), (receiver) => receiver === this);
  }

  [Symbol.asyncDispose](): Promise<void> {
    this.close();
    return Promise.resolve();
  }

  #see(): T {
    touch(this.#watch);
    this.#seen_version = this.#state.version;
    return this.#state.value;
  }
}

function closedError(name: string): RonError {
  return new RonError('closed', `watch ${name} is closed`);
}
