/**
 * A clock for tests: time stands still until the test moves it.
 *
 * Contract: timers fire in order of their due time, then of their creation, and `now_ms` is exactly the due time while
 * one fires. Bound: `timers` lists all that wait. Cancellation: a cancelled timer is gone from `timers` at once.
 * For unit tests that follow one schedule; the explorer has its own for all of them.
 */
import { installSched, realSched, type Parked, type Sched, type Timer } from './sched.ts';

interface Waiting extends Timer {
  readonly due_ms: number;
  readonly label: string;
  readonly fire: () => void;
}

export class VirtualSched implements Sched {
  /** The next results of `random`; the last one repeats. */
  chances: number[] = [0.5];
  timers: Waiting[] = [];
  #now_ms: number;

  constructor(now_ms = 0) {
    this.#now_ms = now_ms;
  }

  /** Runs `use` with this clock installed and restores the previous one, even if it fails. */
  async during<T>(use: () => Promise<T> | T): Promise<T> {
    const previous = installSched(this);
    try {
      return await use();
    } finally {
      installSched(previous);
    }
  }

  now_ms(): number {
    return this.#now_ms;
  }

  wall_ms(): number {
    return 1_700_000_000_000 + this.#now_ms;
  }

  random(): number {
    return this.chances.length > 1 ? this.chances.shift()! : this.chances[0]!;
  }

  randomBytes(count: number): Uint8Array<ArrayBuffer> {
    return realSched.randomBytes(count);
  }

  timer(delay_ms: number, fire: () => void, label: string): Timer {
    const waiting: Waiting = {
      due_ms: this.#now_ms + Math.max(delay_ms, 0),
      label,
      fire,
      cancel: () => {
        this.timers = this.timers.filter((other) => other !== waiting);
      },
    };
    this.timers.push(waiting);
    return waiting;
  }

  park<T>(label: string): Parked<T> {
    return realSched.park<T>(label);
  }

  pause(label: string): Promise<void> {
    return realSched.pause(label);
  }

  task<T>(label: string, run: () => Promise<T>): Promise<T> {
    return realSched.task(label, run);
  }

  /** Moves time on by `step_ms` and fires the timers that are due, without letting promises run in between. */
  advanceSync(step_ms: number): void {
    const end_ms = this.#now_ms + step_ms;
    for (let next = this.#earliest(end_ms); next !== undefined; next = this.#earliest(end_ms)) {
      this.#now_ms = Math.max(this.#now_ms, next.due_ms);
      next.cancel();
      next.fire();
    }
    this.#now_ms = end_ms;
  }

  /** Like `advanceSync`, but promises run until none is pending before the next timer fires. */
  async advance(step_ms: number): Promise<void> {
    const end_ms = this.#now_ms + step_ms;
    await this.settle();
    for (let next = this.#earliest(end_ms); next !== undefined; next = this.#earliest(end_ms)) {
      this.#now_ms = Math.max(this.#now_ms, next.due_ms);
      next.cancel();
      next.fire();
      await this.settle();
    }
    this.#now_ms = end_ms;
  }

  /** Lets every promise that can run do so: microtasks all run before the next immediate. */
  settle(): Promise<void> {
    return realSched.pause('settle');
  }

  #earliest(end_ms: number): Waiting | undefined {
    let first: Waiting | undefined;
    for (const waiting of this.timers) {
      if (waiting.due_ms <= end_ms && (first === undefined || waiting.due_ms < first.due_ms)) first = waiting;
    }
    return first;
  }
}
