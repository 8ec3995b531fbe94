/**
 * Runs small computations in threads, in batches: the round trip to a thread costs as much as one computation.
 *
 * Contract: calls in one turn of the event loop share a batch, and so do calls that arrive while all threads are busy. Each
 * call settles once, with its own results or the error of its batch. A batch whose thread died is retried once; none of its
 * results were delivered. A call that was aborted before its batch begins is not computed.
 * Bound: `threads` concurrent batches, each of about `BATCH_US` of work or a single call; `queue_max` waiting calls.
 * Overflow: `busy`.
 * Cancellation: the signal of a call is checked before and after its batch. A batch takes a few milliseconds, so a listener
 * per call would cost more than it saves.
 *
 *     run run run --> [waiting] --> batch: one message to a thread, one back --> results
 */
import { BlockingPool, isRonError, NEVER, RonError, sched, type Parked } from '@ron/kernel';

/** Work per batch, which bounds the wait of the next call. */
const BATCH_US = 2000;
/** The amount of waiting work that justifies a second thread. */
const SECOND_THREAD_US = 400;

export interface ThreadBatchesInit<I, O> {
  readonly name: string;
  readonly threads: number;
  readonly queue_max: number;
  readonly module: URL;
  /** The exported function that computes a batch. */
  readonly fn: string;
  /** Arguments of a batch. */
  readonly pack: (items: readonly I[]) => readonly unknown[];
  /** The results of a batch, one per item. */
  readonly unpack: (answer: never) => O[];
  /** Default: threads that run `module`. */
  readonly pool?: Pick<BlockingPool, 'run' | 'close'>;
}

interface Waiting<I, O> {
  readonly items: readonly I[];
  readonly cost_us: number;
  readonly signal: AbortSignal;
  readonly answer: Parked<O[]>;
}

export class ThreadBatches<I, O> {
  readonly #init: ThreadBatchesInit<I, O>;
  readonly #pool: Pick<BlockingPool, 'run' | 'close'>;
  #waiting: Waiting<I, O>[] = [];
  #waiting_us = 0;
  #batches_running = 0;
  #isGathering = false;
  /** Threads that were started, and those that are running: no batch waits for a thread that is still starting. */
  #starting = 0;
  #running = 0;

  constructor(init: ThreadBatchesInit<I, O>) {
    this.#init = init;
    const { name, threads, module } = init;
    this.#pool = init.pool ?? new BlockingPool(name, { threads, queue_max: threads, module });
  }

  /** Whether a thread is running. The first read starts one; until then the caller computes on the event loop. */
  get isReady(): boolean {
    if (this.#starting === 0) this.#start();
    return this.#running > 0;
  }

  /** Returns one result per item. `cost_us`: total CPU time of the items. */
  run(items: readonly I[], cost_us: number, signal: AbortSignal): Promise<O[]> {
    if (signal.aborted) return Promise.reject(signal.reason);
    if (this.#waiting.length >= this.#init.queue_max) {
      return Promise.reject(new RonError('busy', `${this.#init.name} is full`, { op: this.#init.fn }));
    }
    const answer = sched.park<O[]>(this.#init.name);
    this.#waiting.push({ items, cost_us, signal, answer });
    this.#waiting_us += cost_us;
    this.#gather();
    return answer.promise;
  }

  close(): Promise<void> {
    return this.#pool.close();
  }

  /** Waits one turn of the event loop, so that concurrent calls share a batch. */
  #gather(): void {
    if (this.#isGathering) return;
    this.#isGathering = true;
    void sched.pause(this.#init.name).then(() => {
      this.#isGathering = false;
      this.#send();
    });
  }

  #send(): void {
    while (this.#waiting.length > 0 && this.#maySend()) {
      const batch = this.#take();
      // Never rejects: each call gets its own error.
      if (batch.length > 0) void this.#runBatch(batch);
    }
  }

  #maySend(): boolean {
    if (this.#batches_running === 0) return true;
    if (this.#waiting_us < SECOND_THREAD_US) return false;
    if (this.#batches_running < this.#running) return true;
    if (this.#starting === this.#running && this.#starting < this.#init.threads) this.#start();
    return false;
  }

  #start(): void {
    this.#starting += 1;
    this.#pool.run('ready', [], NEVER).then(
      () => {
        this.#running += 1;
        this.#send();
      },
      () => (this.#starting -= 1),
    );
  }

  #take(): Waiting<I, O>[] {
    const batch: Waiting<I, O>[] = [];
    let at = 0;
    for (let us = 0; at < this.#waiting.length && us < BATCH_US; at++) {
      const next = this.#waiting[at]!;
      this.#waiting_us -= next.cost_us;
      if (next.signal.aborted) {
        next.answer.fail(next.signal.reason);
        continue;
      }
      us += next.cost_us;
      batch.push(next);
    }
    this.#waiting = at === this.#waiting.length ? [] : this.#waiting.slice(at);
    return batch;
  }

  async #runBatch(batch: readonly Waiting<I, O>[]): Promise<void> {
    const { unpack } = this.#init;
    this.#batches_running += 1;
    try {
      const results = unpack((await this.#compute(batch)) as never);
      let at = 0;
      for (const { items, signal, answer } of batch) {
        if (signal.aborted) answer.fail(signal.reason);
        else answer.wake(results.slice(at, at + items.length));
        at += items.length;
      }
    } catch (error) {
      for (const { answer } of batch) answer.fail(error);
    } finally {
      this.#batches_running -= 1;
      this.#send();
    }
  }

  async #compute(batch: readonly Waiting<I, O>[]): Promise<unknown> {
    const { fn, pack } = this.#init;
    const args = pack(batch.length === 1 ? batch[0]!.items : batch.flatMap(({ items }) => items));
    try {
      return await this.#pool.run(fn, args, NEVER);
    } catch (error) {
      if (!isRonError(error, 'internal')) throw error;
      return await this.#pool.run(fn, args, NEVER);
    }
  }
}
