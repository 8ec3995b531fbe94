/**
 * Calls to the threads of the database, in batches: calls that arrive while all threads work share the next message.
 *
 * Contract: each call is answered once: with its value, the error of the database, `busy`, or `timeout` after its deadline. A
 * call that waits leaves the queue at its deadline. One that runs goes on, and its effect may come later: no thread is
 * ended, because a thread in a system call does not end before that returns. A batch whose thread died is sent once more.
 * Bound: one batch of at most BATCH_MAX calls for each thread, `queue_max` waiting calls.
 * Overflow: `busy`. While every thread is late, calls fail with `timeout` at once: nothing waits behind a hung disk.
 * Cancellation: none but the deadline. Callers that give up drop the promise; the signal of a request never gets here.
 */
import { BlockingPool, isRonError, NEVER, RonError, sched, type Parked, type Timer } from '@ron/kernel';
import type { BatchResult, DatabaseInit, DatabaseState, ThreadCall } from './thread/calls.ts';

/** Calls in one message, which bounds the wait of the next one. */
const BATCH_MAX = 64;
/** Calls of `run` that wait beside the batches. */
const RUNS_MAX = 2;

export interface DatabaseCallsInit {
  readonly name: string;
  readonly threads: number;
  readonly queue_max: number;
  readonly module: URL;
  /** How the threads open the database now. */
  readonly database: () => DatabaseInit;
  /** Called with the state of the database after each batch of the writer. */
  readonly onState?: (state: DatabaseState) => void;
  /** Called if the database is damaged. */
  readonly onDamage?: (why: string) => void;
}

interface PendingCall {
  readonly call: ThreadCall;
  readonly deadline_ms: number;
  readonly answer: Parked<unknown>;
  readonly timer: Timer;
}

interface RunningBatch {
  /** The time at which the thread is late. */
  readonly due_ms: number;
}

export class DatabaseCalls {
  readonly #init: DatabaseCallsInit;
  readonly #pool: BlockingPool;
  readonly #waiting = new Set<PendingCall>();
  readonly #running = new Set<RunningBatch>();

  constructor(init: DatabaseCallsInit) {
    this.#init = init;
    const { name, threads, module } = init;
    this.#pool = new BlockingPool(name, { threads, queue_max: threads + RUNS_MAX, module });
  }

  /** A thread has worked on one batch for longer than its deadline. */
  get isLate(): boolean {
    return this.#late > 0;
  }

  get depth(): number {
    return this.#waiting.size;
  }

  /** Threads that died. */
  get crashed_total(): number {
    return this.#pool.crashed_total;
  }

  call(fn: string, args: readonly unknown[], deadline_ms: number): Promise<unknown> {
    if (this.#late >= this.#init.threads) return Promise.reject(lateError(fn));
    if (this.#waiting.size >= this.#init.queue_max) {
      return Promise.reject(new RonError('busy', 'too many calls wait for the index database', { op: 'db' }));
    }
    const answer = sched.park<unknown>(`${this.#init.name}.${fn}`);
    // [index I-4] [index I-5] Every call ends at its deadline.
    const timer = sched.timer(deadline_ms, () => this.#expire(pending), `${this.#init.name}.deadline`);
    const pending: PendingCall = { call: { fn, args }, deadline_ms, answer, timer };
    this.#waiting.add(pending);
    this.#send();
    return answer.promise;
  }

  /** Calls a function of the module itself, for opening and closing. */
  async run<T>(fn: string, args: readonly unknown[], deadline_ms: number): Promise<T> {
    const answer = sched.park<T>(`${this.#init.name}.${fn}`);
    const timer = sched.timer(deadline_ms, () => answer.fail(lateError(fn)), `${this.#init.name}.deadline`);
    this.#pool.run<T>(fn, args, NEVER).then(answer.wake, answer.fail);
    return await answer.promise.finally(() => timer.cancel());
  }

  /** Lets accepted calls end, then ends the threads. */
  close(): Promise<void> {
    return this.#pool.close();
  }

  get #late(): number {
    const now_ms = sched.now_ms();
    let late = 0;
    for (const { due_ms } of this.#running) if (due_ms < now_ms) late += 1;
    return late;
  }

  #expire(pending: PendingCall): void {
    this.#waiting.delete(pending);
    pending.answer.fail(lateError(pending.call.fn));
  }

  #send(): void {
    while (this.#waiting.size > 0 && this.#running.size < this.#init.threads) {
      // The threads share the waiting calls.
      const count = Math.min(BATCH_MAX, Math.ceil(this.#waiting.size / this.#init.threads));
      const batch = [...this.#waiting.values().take(count)];
      for (const pending of batch) this.#waiting.delete(pending);
      // Never rejects: each call gets its own error.
      void this.#runBatch(batch);
    }
  }

  async #runBatch(batch: readonly PendingCall[]): Promise<void> {
    const deadline_ms = Math.max(...batch.map((pending) => pending.deadline_ms));
    const running: RunningBatch = { due_ms: sched.now_ms() + deadline_ms };
    this.#running.add(running);
    try {
      const { results, state } = await this.#compute(batch.map(({ call }) => call));
      if (state !== undefined) this.#init.onState?.(state);
      batch.forEach((pending, at) => this.#answer(pending, results[at]!));
    } catch (error) {
      for (const { answer } of batch) answer.fail(error);
    } finally {
      for (const { timer } of batch) timer.cancel();
      this.#running.delete(running);
      this.#send();
    }
  }

  #answer({ answer }: PendingCall, result: BatchResult['results'][number]): void {
    if ('value' in result) return answer.wake(result.value);
    const { code, message, reason } = result.error;
    if (code === 'integrity') this.#init.onDamage?.(message);
    answer.fail(new RonError(code, message, { op: 'db', ...(reason === undefined ? {} : { reason }) }));
  }

  /** The calls are idempotent, so a batch whose thread died can be sent again. */
  async #compute(calls: readonly ThreadCall[]): Promise<BatchResult> {
    const attempt = (): Promise<BatchResult> => this.#pool.run('runBatch', [this.#init.database(), calls], NEVER);
    try {
      return await attempt();
    } catch (error) {
      if (!isRonError(error, 'internal')) throw error;
      return await attempt();
    }
  }
}

function lateError(fn: string): RonError {
  return new RonError('timeout', 'the index database does not answer', { op: 'db', details: { call: fn } });
}
