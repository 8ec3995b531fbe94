/**
 * The part that every queue of jobs has in common: its workers, and how it closes.
 *
 * Contract: `close` refuses new jobs, wakes the workers that wait and lets accepted jobs finish; a worker that finds no job
 * ends. A worker whose task stops closes the queue. Disposal closes, and rejects the jobs that wait with `draining`; work
 * in progress goes on.
 * Bound: as many waiting workers as the service starts. Cancellation: a worker whose signal aborts stops waiting.
 *
 *     runtime.spawn('pool', (task) => queue.serve(task));
 */
import { RonError } from '../errors.ts';
import { touch } from '../sched.ts';
import { onAbort } from '../sync/on-abort.ts';
import { WaitList } from '../sync/wait-list.ts';
import type { TaskContext } from '../tasks/supervisor.ts';

export abstract class ServedQueue<W> implements AsyncDisposable {
  readonly name: string;
  /** Woken with a job, or with undefined when the queue is closed. */
  protected readonly workers: WaitList<W | undefined, undefined>;
  #isClosed = false;

  constructor(name: string) {
    this.name = name;
    this.workers = new WaitList({ owner: this, label: `${name}.take` });
  }

  /** Workers that wait for a job. Never while a job waits that is not promised to another worker. */
  get idle(): number {
    touch(this);
    return this.workers.size;
  }

  /** The life of one worker. Ends when the queue is closed and drained, rejects when the task is aborted. */
  async serve({ signal, stopping }: Pick<TaskContext, 'signal' | 'stopping'>): Promise<void> {
    using _ = onAbort(stopping, () => this.close());
    while (await this.serveNext(signal));
  }

  /** Refuses new jobs. Accepted jobs are still served; a worker that finds none ends. Idempotent. */
  close(): void {
    touch(this);
    if (this.#isClosed) return;
    this.#isClosed = true;
    while (this.workers.size > 0) this.workers.wakeFirst(undefined);
    this.workers.close();
    this.stopIfDone();
  }

  [Symbol.asyncDispose](): Promise<void> {
    this.close();
    this.abortQueued(new RonError('draining', `queue ${this.name} was closed`));
    return Promise.resolve();
  }

  /** Answers every job whose work has not begun with `error`; returns their number. */
  abstract abortQueued(error: unknown): number;

  /** Waits for work and does it. False: the queue is closed and drained. */
  protected abstract serveNext(signal: AbortSignal): Promise<boolean>;

  /** Cancels the timers once the queue is closed and drained. */
  protected abstract stopIfDone(): void;

  protected get isClosed(): boolean {
    return this.#isClosed;
  }

  protected drainingError(): RonError {
    return new RonError('draining', `queue ${this.name} takes no more work`);
  }
}
