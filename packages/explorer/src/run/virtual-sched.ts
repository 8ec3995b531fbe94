/**
 * The scheduler that the explorer installs in place of the real one: the kernel's waits become steps of a run.
 *
 * `random` is a choice among low, middle and high values. Random bytes count up: they are taken to be distinct, no more.
 */
import type { Parked, Sched, Timer } from '@ron/kernel/sched';
import type { Run } from './run.ts';

/** Any date will do, as long as it is the same in every schedule. */
const WALL_START_MS = Date.UTC(2026, 0, 1);
/** The ends of the range and the middle, which comes first. */
const RANDOM = [0.5, 0, 1 - Number.EPSILON / 2];
const TIMER_DELAY_MS_MAX = 2 ** 31 - 1;

export class VirtualSched implements Sched {
  readonly #run: Run;

  constructor(run: Run) {
    this.#run = run;
  }

  now_ms(): number {
    return this.#run.now_ms();
  }

  wall_ms(): number {
    return WALL_START_MS + this.now_ms();
  }

  random(): number {
    return this.#run.choose('random', RANDOM);
  }

  randomBytes(count: number): Uint8Array<ArrayBuffer> {
    this.#run.footprint?.touchesEverything();
    const bytes = new Uint8Array(count);
    let rest = ++this.#run.randoms_drawn;
    for (let index = count - 1; index >= 0 && rest > 0; index--) {
      bytes[index] = rest % 256;
      rest = Math.floor(rest / 256);
    }
    return bytes;
  }

  /** As in production: not in the past, and no longer than 31 bits of milliseconds. */
  timer(delay_ms: number, fire: () => void, label: string): Timer {
    const run = this.#run;
    const timer = run.addTimer(Math.min(Math.max(delay_ms, 0), TIMER_DELAY_MS_MAX), fire, label);
    return { cancel: () => run.removeTimer(timer) };
  }

  park<T>(label: string): Parked<T> {
    const run = this.#run;
    const step = run.step(label, 'wake');
    const { promise, resolve, reject } = Promise.withResolvers<T>();
    run.wait(step);
    let settled = false;
    const settle = (go: () => void, value: unknown, failed: boolean): void => {
      // The first one wins, so the loser's step depends on this one too.
      run.footprint?.settles(step);
      if (settled) return;
      settled = true;
      step.value = value;
      step.failed = failed;
      step.go = go;
      run.wake(step);
    };
    return {
      promise,
      wake: (value) => settle(() => resolve(value), value, false),
      // As code of its task, so that an unhandled rejection is attributed to this run.
      fail: (error) => settle(() => run.as(step.task, () => reject(error)), error, true),
    };
  }

  pause(label: string): Promise<void> {
    return waitFor(this.#run, label, 'pause');
  }

  task<T>(label: string, work: () => Promise<T>): Promise<T> {
    const run = this.#run;
    run.hasWakes = true;
    if (!run.isDelayed) {
      const task = run.addTask(label, false);
      // Its promise is the caller's, so the explorer cannot know in which step the caller goes on.
      task.isFollowed = false;
      run.footprint?.runs(task);
      return run.as(task, work);
    }
    const { promise, resolve, reject } = Promise.withResolvers<T>();
    run.spawn(label, false, async () => {
      const task = run.task();
      try {
        resolve(await work());
      } catch (error) {
        reject(error);
      }
      // A task that awaits the outcome goes on in this same step, and may do anything there.
      run.footprint?.touchesEverything();
      run.end(task);
    });
    return promise;
  }
}

/** A wait that is ready at once. */
export function waitFor(run: Run, label: string, kind: 'io' | 'pause'): Promise<void> {
  const step = run.step(label, kind);
  return new Promise((resolve) => {
    step.go = resolve;
    run.offer(step);
  });
}
