/**
 * Waits for work with a time limit.
 *
 * Contract: the outcome of the work if it ends in time; `LATE` otherwise, and then the outcome is ignored.
 * Bound: one timer while it waits. Cancellation: the work itself has the signal.
 */
import { RonError, sched } from '@ron/kernel';

export const LATE = Symbol('late');

export function within<T>(work: Promise<T>, wait_ms: number): Promise<T | typeof LATE> {
  const parked = sched.park<T | typeof LATE>('patience');
  const timer = sched.timer(wait_ms, () => parked.wake(LATE), 'patience');
  work.then(
    (value) => {
      timer.cancel();
      parked.wake(value);
    },
    (error: unknown) => {
      timer.cancel();
      parked.fail(error);
    },
  );
  return parked.promise;
}

/**
 * Runs one call at a time: a caller that comes meanwhile waits for the same outcome. Each question that hangs
 * would keep a thread.
 */
export class Inquiry<T> {
  readonly #ask: () => Promise<T>;
  #asked: Promise<T> | undefined;

  constructor(ask: () => Promise<T>) {
    this.#ask = ask;
  }

  /** What it answers, or `LATE`. */
  within(wait_ms: number): Promise<T | typeof LATE> {
    this.#asked ??= this.#ask().finally(() => (this.#asked = undefined));
    return within(this.#asked, wait_ms);
  }
}

/** What a volume may take for one record in the background. A disk that takes longer is broken, or as good as. */
const BACKGROUND_MS = 30_000;

/** How a caller waits for a volume. */
export type Patience = <T>(work: Promise<T>) => Promise<T>;

/** Waits for a volume that nobody waits for; `timeout` when it takes too long. */
export async function patiently<T>(work: Promise<T>): Promise<T> {
  const result = await within(work, BACKGROUND_MS);
  if (result === LATE) throw new RonError('timeout', 'a volume took too long', { op: 'repair' });
  return result;
}
