/**
 * Long-running tasks that an operator starts: their progress and their outcome.
 *
 * Contract: of each kind at most one task runs; a second request returns the running one. A task stays listed from its start
 * until `TASKS_MAX` later ones have replaced it, even if it failed.
 * Bound: `TASKS_MAX` tasks. Overflow: the oldest task that has ended is dropped. Cancellation: by the signal of the runner.
 */
import { assert, isRonError, sched } from '@ron/kernel';
import type { Task } from '@ron/proto';

const TASKS_MAX = 64;
const ID_BYTES = 8;

export interface TaskWork {
  /** Resolves once the work is complete. */
  run(signal: AbortSignal): Promise<unknown>;
  progress(): Readonly<Record<string, unknown>>;
}

/** Runs the work to its end, and aborts its signal when the service stops. */
export type TaskRunner<K extends string> = (kind: K, work: (signal: AbortSignal) => Promise<void>) => Promise<void>;

interface Entry<K extends string> {
  readonly work: TaskWork;
  task: Task<K>;
}

export class AdminTasks<K extends string = string> {
  readonly #runner: TaskRunner<K>;
  /** Oldest first. */
  readonly #entries = new Map<string, Entry<K>>();

  constructor(runner: TaskRunner<K>) {
    this.#runner = runner;
  }

  /** Starts a task, or returns the running one of its kind. */
  start(kind: K, work: TaskWork): Task<K> {
    const running = [...this.#entries.values()].find(({ task }) => task.kind === kind && task.state === 'running');
    if (running !== undefined) return this.#shown(running);
    const id = Buffer.from(sched.randomBytes(ID_BYTES)).toString('hex');
    const task: Task<K> = { id, kind, state: 'running', started_ms: sched.wall_ms(), progress: {} };
    const entry: Entry<K> = { work, task };
    this.#entries.set(id, entry);
    this.#forgetOldest();
    // Never rejects: the outcome is recorded in the task.
    void this.#run(entry);
    return this.#shown(entry);
  }

  get(id: string): Task<K> | undefined {
    const entry = this.#entries.get(id);
    return entry === undefined ? undefined : this.#shown(entry);
  }

  /** The newest first. */
  list(): Task<K>[] {
    return [...this.#entries.values()].map((entry) => this.#shown(entry)).toReversed();
  }

  #shown({ task, work }: Entry<K>): Task<K> {
    return task.state === 'running' ? { ...task, progress: work.progress() } : task;
  }

  async #run(entry: Entry<K>): Promise<void> {
    try {
      await this.#runner(entry.task.kind, async (signal) => void (await entry.work.run(signal)));
      this.#end(entry, { state: 'done' });
    } catch (error) {
      const problem = error instanceof Error ? error.message : String(error);
      this.#end(entry, { state: isRonError(error, 'canceled') ? 'canceled' : 'failed', problem });
    }
  }

  #end(entry: Entry<K>, how: Pick<Task, 'state' | 'problem'>): void {
    assert(entry.task.state === 'running', 'a task ends once');
    entry.task = { ...this.#shown(entry), ...how, ended_ms: sched.wall_ms() };
  }

  #forgetOldest(): void {
    if (this.#entries.size <= TASKS_MAX) return;
    const oldest = [...this.#entries].find(([, { task }]) => task.state !== 'running');
    if (oldest !== undefined) this.#entries.delete(oldest[0]);
  }
}
