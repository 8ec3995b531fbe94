/**
 * Coalesces concurrent calls with the same key.
 *
 * Promise: while a run for a key is under way, every caller with the key gets its outcome; the next caller after
 * that starts another. Each caller may leave by its own signal; the run is cancelled only when the last one left.
 * Bound: one entry for each key under way; admission bounds the callers. Cancellation: as said.
 */
import { sched, touch } from '@ron/kernel';

interface Flight<T> {
  readonly outcome: Promise<T>;
  readonly cancel: AbortController;
  waiters: number;
}

export class SingleFlight<T> {
  readonly #flights = new Map<string, Flight<T>>();

  get size(): number {
    return this.#flights.size;
  }

  run(key: string, signal: AbortSignal, start: (signal: AbortSignal) => Promise<T>): Promise<T> {
    touch(this);
    if (signal.aborted) return Promise.reject(signal.reason);
    const flight = this.#flights.get(key) ?? this.#launch(key, start);
    flight.waiters += 1;
    const parked = sched.park<T>('single-flight');
    const leave = (): void => {
      touch(this);
      flight.waiters -= 1;
      if (flight.waiters === 0) this.#abandon(key, flight, signal.reason);
      parked.fail(signal.reason);
    };
    signal.addEventListener('abort', leave, { once: true });
    void flight.outcome.then(parked.wake, parked.fail).finally(() => signal.removeEventListener('abort', leave));
    return parked.promise;
  }

  #launch(key: string, start: (signal: AbortSignal) => Promise<T>): Flight<T> {
    const cancel = new AbortController();
    const outcome = start(cancel.signal);
    const flight: Flight<T> = { outcome, cancel, waiters: 0 };
    this.#flights.set(key, flight);
    const land = (): void => {
      touch(this);
      if (this.#flights.get(key) === flight) this.#flights.delete(key);
    };
    outcome.then(land, land);
    return flight;
  }

  /** The last caller left: the next one must not join a run that is being cancelled. */
  #abandon(key: string, flight: Flight<T>, reason: unknown): void {
    if (this.#flights.get(key) === flight) this.#flights.delete(key);
    flight.cancel.abort(reason);
  }
}
