/**
 * Small computations that are made in threads, many with one hop: the way there and back costs as much as one of them.
 *
 * Promise: what is asked for in one turn of the event loop goes together, and so does what comes while threads work. Each
 * call is answered once, with its own results or the error of its hop. A hop whose thread died is made once more: nothing
 * was given out. What nobody waits for any more when its hop begins is not computed.
 * Bound: `threads` hops at once, each of some `HOP_US` of work, or of one call; `queue_max` calls that wait.
 * Overflow: `busy`.
 * Cancellation: by the signal of each, looked at before its hop and after it: a hop takes a few milliseconds, and a
 * listener for each call would cost more than it saves.
 *
 *     ask ask ask --> [waiting] --> hop: one message there, one back --> answers
 */
import { BlockingPool, isRonError, NEVER, RonError, sched, type Parked } from '@ron/kernel';

/** Work of one hop. Whoever comes next waits no longer than that for a thread. */
const HOP_US = 2000;
/** So much has to wait before a second thread is worth its hop. */
const MORE_US = 400;

export interface ThreadBatchesInit<I, O> {
  readonly name: string;
  readonly threads: number;
  readonly queue_max: number;
  readonly module: URL;
  /** The exported function that does a hop. */
  readonly fn: string;
  /** Arguments of a hop. */
  readonly pack: (items: readonly I[]) => readonly unknown[];
  /** What it gave, one for each item. */
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
  #hops = 0;
  #isGathering = false;
  /** Threads that were told to start, and those that have: no hop waits for one that has yet to. */
  #starting = 0;
  #running = 0;

  constructor(init: ThreadBatchesInit<I, O>) {
    this.#init = init;
    const { name, threads, module } = init;
    this.#pool = init.pool ?? new BlockingPool(name, { threads, queue_max: threads, module });
  }

  /** Whether a thread runs. Asking starts one: until it does, the caller computes by itself. */
  get isReady(): boolean {
    if (this.#starting === 0) this.#start();
    return this.#running > 0;
  }

  /** A result for each item. `cost_us`: CPU time of all of them together. */
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

  /** Lets what comes in the same turn of the event loop come along. */
  #gather(): void {
    if (this.#isGathering) return;
    this.#isGathering = true;
    void sched.pause(this.#init.name).then(() => {
      this.#isGathering = false;
      this.#send();
    });
  }

  #send(): void {
    while (this.#waiting.length > 0 && this.#mayHop()) {
      const batch = this.#take();
      // It never rejects: each item is answered.
      if (batch.length > 0) void this.#hop(batch);
    }
  }

  #mayHop(): boolean {
    if (this.#hops === 0) return true;
    if (this.#waiting_us < MORE_US) return false;
    if (this.#hops < this.#running) return true;
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
    for (let us = 0; at < this.#waiting.length && us < HOP_US; at++) {
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

  async #hop(batch: readonly Waiting<I, O>[]): Promise<void> {
    const { unpack } = this.#init;
    this.#hops += 1;
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
      this.#hops -= 1;
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
