/**
 * Runs one work at a time for each key; a newcomer cancels the work under way and begins after it.
 *
 * Promise: two works on one key never overlap. A work whose signal is aborted by a newcomer still ends in its own time, and
 * the newcomer begins after it. After `close` nothing begins, and what was at work has ended when `close` resolves.
 * Bound: one entry for each key at work; admission bounds the waiters. Cancellation: a waiter leaves by its signal;
 * a work gets a signal that aborts with its own or when it is overtaken.
 */
import { RonError, sched, touch, type Parked } from '@ron/kernel';

interface Turn {
  readonly cancel: AbortController;
  readonly waiting: Set<Parked<void>>;
}

export class Turns {
  readonly #turns = new Map<string, Turn>();
  #closed = false;

  get isClosed(): boolean {
    return this.#closed;
  }

  isTaken(key: string): boolean {
    touch(this);
    return this.#turns.has(key);
  }

  async run<T>(key: string, signal: AbortSignal, work: (signal: AbortSignal) => Promise<T>): Promise<T> {
    touch(this);
    for (let taken = this.#turns.get(key); taken !== undefined; taken = this.#turns.get(key)) {
      taken.cancel.abort(new RonError('conflict', 'another request took over'));
      await this.#wait(taken, signal);
    }
    if (this.#closed) throw new RonError('draining', 'it is being closed');
    const turn: Turn = { cancel: new AbortController(), waiting: new Set() };
    this.#turns.set(key, turn);
    try {
      return await work(AbortSignal.any([signal, turn.cancel.signal]));
    } finally {
      touch(this);
      this.#turns.delete(key);
      for (const parked of turn.waiting) parked.wake();
    }
  }

  /** Cancels all works and waits until they have ended. */
  async close(): Promise<void> {
    touch(this);
    this.#closed = true;
    const { signal } = new AbortController();
    for (const turn of this.#turns.values()) turn.cancel.abort(new RonError('draining', 'it is being closed'));
    for (const turn of this.#turns.values()) await this.#wait(turn, signal);
  }

  async #wait(turn: Turn, signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    const parked = sched.park<void>('turn');
    const onAbort = (): void => {
      turn.waiting.delete(parked);
      parked.fail(signal.reason);
    };
    signal.addEventListener('abort', onAbort, { once: true });
    turn.waiting.add(parked);
    try {
      await parked.promise;
    } finally {
      touch(this);
      signal.removeEventListener('abort', onAbort);
    }
  }
}
