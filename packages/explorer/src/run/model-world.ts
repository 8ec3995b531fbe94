/** The world that a model is built in: its tasks, I/O and choices become steps of a run. */
import type { TaskInit, World } from '../model.ts';
import type { Run } from './run.ts';
import { waitFor } from './virtual-sched.ts';

export class ModelWorld implements World {
  readonly #run: Run;

  constructor(run: Run) {
    this.#run = run;
  }

  task(name: string, work: () => Promise<void>, init?: TaskInit): void {
    const run = this.#run;
    run.spawn(name, init?.daemon !== true, async () => {
      const task = run.task();
      try {
        await work();
        run.end(task);
      } catch (error) {
        run.reject(task, error);
      }
    });
  }

  io(label: string): Promise<void> {
    return waitFor(this.#run, label, 'io');
  }

  choose<T>(label: string, values: readonly T[]): T {
    return this.#run.choose(label, values);
  }

  now_ms(): number {
    this.#run.footprint?.readsClock();
    return this.#run.clock.now_ms;
  }

  turns(): number {
    return this.#run.turns;
  }

  isLagging(): boolean {
    return this.#run.clock.isLagging;
  }
}
