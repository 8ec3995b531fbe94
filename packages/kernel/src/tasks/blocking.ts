/**
 * A few threads for work that would hold up the event loop for more than about a millisecond: signatures, checksums of
 * large packs.
 *
 * Contract: a job is answered exactly once: with the function's value or error, `busy`, the signal's reason, or `internal`
 * when its thread died. A thread that dies is replaced when there is work for it; only its own job fails.
 * Bound: `threads` threads, started when first needed, including threads that are being terminated; `queue_max` jobs that
 * wait.
 * Overflow: `run` refuses with `busy` at once.
 * Cancellation: an aborted job that waits leaves the queue. One that runs is answered at once and its thread is
 * terminated, because a computation cannot be interrupted otherwise; but only after its module was imported, because
 * terminating native code while it loads crashes the process. `close()` lets jobs finish for `close_ms`, then terminates
 * all threads.
 *
 * Threads that have nothing to do do not keep the process alive.
 * Arguments and results are copied, or moved if they are in `transfer`; a function that needs no copy takes a
 * SharedArrayBuffer.
 */
import { Worker, type Transferable } from 'node:worker_threads';
import type { Answer, Call, WireError } from './blocking-worker.ts';
import { assert, RonError } from '../errors.ts';
import { onAbort } from '../sync/on-abort.ts';
import { sched, touch, type Parked } from '../sched.ts';

export interface BlockingPoolInit {
  /** Threads at most. More than cores gains nothing. */
  threads: number;
  /** Jobs that may wait for a thread. */
  queue_max: number;
  /** The module whose exported functions are called. It is imported once in each thread. */
  module: URL;
  /** How long `close()` lets jobs finish. Default 1000. */
  close_ms?: number;
  /** Called with its number (`threadId` there) when a thread has ended for any reason. Optional. */
  onThreadEnd?: (thread: number) => void;
}

interface PoolJob {
  readonly call: Call;
  readonly transfer: readonly Transferable[];
  readonly answer: Parked<unknown>;
  /** The abort listener of its caller. */
  readonly registration: Disposable;
}

interface Thread {
  readonly worker: Worker;
  /** Its number; the worker forgets it when it ends. */
  readonly id: number;
  /** Its module is imported. */
  ready: boolean;
  /** The job in progress. */
  job: PoolJob | undefined;
  /** It is being terminated: it takes no more jobs, but counts until it has ended. */
  ending: boolean;
  /** Why it dies, when it says so. */
  error: unknown;
}

/** A thread that takes longer than this to end is abandoned: native code cannot be interrupted. */
const END_MS_MAX = 1000;
/** A thread that is loading is waited for this long at the end: the process must not end under it either. */
const LOAD_MS_MAX = 10_000;
const CLOSE_MS_DEFAULT = 1000;

/** Threads of all pools that were terminated and have not ended. */
const ending = new Set<Thread>();

/** How many threads do not end although they were terminated. The exit of the process would wait for them. */
export const endingThreads = (): number => ending.size;

export class BlockingPool implements AsyncDisposable {
  readonly name: string;
  readonly #threads_max: number;
  readonly #queue_max: number;
  readonly #module: URL;
  readonly #close_ms: number;
  readonly #onThreadEnd: ((thread: number) => void) | undefined;
  readonly #threads = new Set<Thread>();
  readonly #idle: Thread[] = [];
  /** In order of arrival. */
  readonly #queue = new Set<PoolJob>();
  #closing: Promise<void> | undefined;
  #changed: Parked<void> | undefined;
  /** Jobs refused because the queue was full. */
  busy_total = 0;
  /** Threads that ended unexpectedly. */
  crashed_total = 0;

  constructor(name: string, init: BlockingPoolInit) {
    assert(Number.isSafeInteger(init.threads) && init.threads >= 1, `pool ${name}: at least one thread`);
    assert(Number.isSafeInteger(init.queue_max) && init.queue_max >= 0, `pool ${name}: a bounded queue`);
    this.name = name;
    this.#threads_max = init.threads;
    this.#queue_max = init.queue_max;
    this.#module = init.module;
    this.#close_ms = init.close_ms ?? CLOSE_MS_DEFAULT;
    this.#onThreadEnd = init.onThreadEnd;
  }

  /** Jobs that wait. */
  get depth(): number {
    return this.#queue.size;
  }

  /** Threads that exist, idle and ending ones included. */
  get threads(): number {
    return this.#threads.size;
  }

  /** Calls the exported function `fn` in a thread and returns its result. */
  run<T>(
    fn: string,
    args: readonly unknown[],
    signal: AbortSignal,
    transfer: readonly Transferable[] = [],
  ): Promise<T> {
    touch(this);
    if (signal.aborted) return Promise.reject(signal.reason);
    if (this.#closing !== undefined) return Promise.reject(new RonError('draining', `pool ${this.name} is closed`));
    // [storage I-7] [kms I-7] [index I-7] [edge I-7] [interop I-7] Long computations run in a thread.
    const thread = this.#freeThread();
    if (thread === undefined && this.#queue.size >= this.#queue_max) {
      this.busy_total += 1;
      return Promise.reject(new RonError('busy', `pool ${this.name} is full`, { op: fn }));
    }
    const answer = sched.park<unknown>(`${this.name}.${fn}`);
    const registration = onAbort(signal, (reason) => this.#abort(job, reason));
    const job: PoolJob = { call: { fn, args }, transfer, answer, registration };
    if (thread === undefined) this.#queue.add(job);
    else this.#assign(thread, job);
    return answer.promise as Promise<T>;
  }

  /** Refuses new jobs, lets accepted ones finish for `close_ms`, and ends the threads. Never rejects. */
  close(): Promise<void> {
    touch(this);
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  /** An idle thread, or a new one while there may be more. */
  #freeThread(): Thread | undefined {
    return this.#idle.pop() ?? (this.#threads.size < this.#threads_max ? this.#startThread() : undefined);
  }

  #startThread(): Thread {
    const worker = new Worker(new URL('./blocking-worker.ts', import.meta.url), {
      name: this.name,
      // The flags of this process are its own; some of them keep a thread from starting.
      execArgv: [],
      workerData: { module: this.#module.href },
    });
    const thread: Thread = {
      worker,
      id: worker.threadId,
      ready: false,
      job: undefined,
      ending: false,
      error: undefined,
    };
    this.#threads.add(thread);
    worker.on('message', (answer: Answer) => this.#answered(thread, answer));
    worker.on('messageerror', (error) => this.#answered(thread, { error: unreadable(error) }));
    worker.on('error', (error) => (thread.error = error));
    worker.on('exit', (code) => this.#exited(thread, code));
    return thread;
  }

  #assign(thread: Thread, job: PoolJob): void {
    thread.job = job;
    thread.worker.ref();
    try {
      thread.worker.postMessage(job.call, job.transfer);
    } catch (error) {
      // Values that cannot be copied are a mistake of the caller; the thread has not received the call.
      this.#release(thread)?.answer.fail(error);
      this.#next(thread);
    }
  }

  #answered(thread: Thread, answer: Answer): void {
    touch(this);
    if ('ready' in answer) {
      thread.ready = true;
      if (thread.ending) void thread.worker.terminate();
      this.#changed?.wake();
      return;
    }
    if (thread.ending) return;
    const parked = this.#release(thread)?.answer;
    if ('error' in answer) parked?.fail(fromWire(answer.error));
    else parked?.wake(answer.value);
    this.#next(thread);
  }

  /** Assigns the next job to a free thread, if there is one. */
  #next(thread: Thread): void {
    const [job] = this.#queue;
    if (job === undefined) {
      thread.worker.unref();
      this.#idle.push(thread);
      this.#changed?.wake();
      return;
    }
    this.#queue.delete(job);
    this.#assign(thread, job);
  }

  /** Detaches the job from its thread; the caller answers it. */
  #release(thread: Thread): PoolJob | undefined {
    const job = thread.job;
    thread.job = undefined;
    job?.registration[Symbol.dispose]();
    return job;
  }

  #abort(job: PoolJob, reason: unknown): void {
    touch(this);
    job.answer.fail(reason);
    if (this.#queue.delete(job)) return;
    for (const thread of this.#threads) if (thread.job === job) this.#end(thread);
  }

  #end(thread: Thread): void {
    thread.ending = true;
    ending.add(thread);
    this.#release(thread);
    thread.worker.unref();
    // Its end is seen by the `exit` event.
    if (thread.ready) void thread.worker.terminate();
  }

  #exited(thread: Thread, code: number): void {
    touch(this);
    this.#threads.delete(thread);
    ending.delete(thread);
    this.#onThreadEnd?.(thread.id);
    const at = this.#idle.indexOf(thread);
    if (at >= 0) this.#idle.splice(at, 1);
    if (!thread.ending) this.crashed_total += 1;
    const job = this.#release(thread);
    const message = `a thread of pool ${this.name} ended with code ${code} during ${job?.call.fn}`;
    job?.answer.fail(new RonError('internal', message, { cause: thread.error }));
    if (this.#queue.size > 0) this.#next(this.#startThread());
    this.#changed?.wake();
  }

  async #close(): Promise<void> {
    await this.#until(() => this.#queue.size === 0 && this.#threads.size === this.#idle.length, this.#close_ms);
    const late = new RonError('canceled', `pool ${this.name} closed before the job was done`);
    for (const job of this.#queue) {
      job.registration[Symbol.dispose]();
      job.answer.fail(late);
    }
    this.#queue.clear();
    this.#idle.length = 0;
    for (const thread of this.#threads) {
      thread.job?.answer.fail(late);
      if (!thread.ending) this.#end(thread);
    }
    await this.#until(() => this.#threads.size === 0, END_MS_MAX);
    await this.#until(() => this.#threads.values().every(({ ready }) => ready), LOAD_MS_MAX);
  }

  /** Waits for `condition`, at most `wait_ms`. It is evaluated whenever a thread becomes idle or ends. */
  async #until(condition: () => boolean, wait_ms: number): Promise<void> {
    const label = `${this.name}.close`;
    const ends_ms = sched.now_ms() + wait_ms;
    for (let left_ms = wait_ms; left_ms > 0 && !condition(); left_ms = ends_ms - sched.now_ms()) {
      const changed = sched.park<void>(label);
      const timer = sched.timer(left_ms, changed.wake, label, { keepAlive: true });
      this.#changed = changed;
      await changed.promise;
      this.#changed = undefined;
      timer.cancel();
    }
  }
}

function unreadable(error: Error): WireError {
  return { name: error.name, message: error.message, stack: error.stack ?? '', ron: undefined };
}

/** The error as its function threw it, as far as it can be copied; the stack is that of the thread. */
function fromWire({ name, message, stack, ron }: WireError): Error {
  if (ron !== undefined) return Object.assign(new RonError(ron.code, message, ron), { stack });
  return Object.assign(new Error(message), { name, stack });
}
