/**
 * Group commit: one write and one sync for all waiting appends.
 *
 * Contract: an append is answered exactly once, after the `commit` of its batch has ended, or earlier if `commit` says so. All
 * other appends of a batch succeed or fail together; batches are committed in order, one at a time. After `close`, waiting
 * appends are still committed and new ones are refused.
 * Bound: `queue_bytes_max` bytes wait, or one larger entry. One batch has `batch_bytes_max` bytes and `batch_count_max` parts,
 * or one larger entry.
 * Entries of no bytes (syncs) are bounded by their callers. Overflow: `busy`, at once.
 * Cancellation: an append whose signal aborts while it waits is removed and was not written. Once its batch is being
 * committed, the outcome is that of the batch.
 */
import { assert, onAbort, RonError, sched, touch, type Parked } from '@ron/kernel';

interface Waiting<T, R> {
  readonly item: T;
  readonly bytes: number;
  readonly parked: Parked<R>;
  readonly registration: Disposable;
}

export interface GroupCommitInit<T, R> {
  name: string;
  /** The bytes that may wait. */
  queue_bytes_max: number;
  /** Bytes of one batch; a single entry may be larger. */
  batch_bytes_max: number;
  /** Parts of one batch; a single entry may have more. Default: no limit. */
  batch_count_max?: number | undefined;
  /** The parts of an entry, such as its records. Default 1. */
  countOf?(item: T): number;
  /**
   * Writes and syncs a batch; returns the result of each entry, in order. An error is the result of every entry. Entries
   * that need not wait for the end get their result by `answer`, with their index in the batch.
   */
  commit(batch: readonly T[], answer: (index: number, result: R) => void): Promise<readonly R[]>;
}

export class GroupCommit<T, R> implements AsyncDisposable {
  readonly #init: GroupCommitInit<T, R>;
  readonly #waiting: Set<Waiting<T, R>> = new Set();
  #waiting_bytes = 0;
  #isCommitting = false;
  #closed = false;
  #idle: Parked<void>[] = [];
  batches_total = 0;
  entries_total = 0;

  constructor(init: GroupCommitInit<T, R>) {
    this.#init = init;
  }

  get waiting_bytes(): number {
    return this.#waiting_bytes;
  }

  append(item: T, bytes: number, signal: AbortSignal): Promise<R> {
    touch(this);
    if (signal.aborted) return Promise.reject(signal.reason);
    if (this.#closed) return Promise.reject(new RonError('closed', `${this.#init.name} is closed`));
    if (this.#waiting_bytes > 0 && this.#waiting_bytes + bytes > this.#init.queue_bytes_max) {
      return Promise.reject(
        new RonError('busy', `${this.#init.name}: ${this.#waiting_bytes} bytes wait to be written`, {
          retry_after_ms: 1000,
        }),
      );
    }
    const parked = sched.park<R>(`${this.#init.name}.append`);
    const registration = onAbort(signal, (reason) => this.#cancel(entry, reason));
    const entry: Waiting<T, R> = { item, bytes, parked, registration };
    this.#waiting.add(entry);
    this.#waiting_bytes += bytes;
    this.#start();
    return parked.promise;
  }

  /** Refuses new appends and returns when all waiting ones are answered. */
  async close(): Promise<void> {
    touch(this);
    this.#closed = true;
    if (!this.#isCommitting) return;
    const parked = sched.park<void>(`${this.#init.name}.close`);
    this.#idle.push(parked);
    await parked.promise;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  #cancel(entry: Waiting<T, R>, reason: unknown): void {
    touch(this);
    if (!this.#waiting.delete(entry)) return;
    this.#waiting_bytes -= entry.bytes;
    entry.parked.fail(reason);
  }

  #start(): void {
    if (this.#isCommitting) return;
    this.#isCommitting = true;
    // It never rejects: the entries of a failed batch get the error.
    void sched.task(`${this.#init.name}.commit`, () => this.#commitAll());
  }

  async #commitAll(): Promise<void> {
    // One turn of the event loop gathers the appends that arrived together; later ones gather while a sync runs.
    await sched.pause(`${this.#init.name}.gather`);
    touch(this);
    while (this.#waiting.size > 0) {
      const batch = this.#takeBatch();
      await this.#commitBatch(batch);
      touch(this);
    }
    this.#isCommitting = false;
    for (const parked of this.#idle.splice(0)) parked.wake();
  }

  #takeBatch(): Waiting<T, R>[] {
    const { batch_bytes_max, batch_count_max = Number.POSITIVE_INFINITY } = this.#init;
    const batch: Waiting<T, R>[] = [];
    let bytes = 0;
    let count = 0;
    for (const entry of this.#waiting) {
      const parts = this.#init.countOf?.(entry.item) ?? 1;
      if (batch.length > 0 && (bytes + entry.bytes > batch_bytes_max || count + parts > batch_count_max)) break;
      entry.registration[Symbol.dispose]();
      this.#waiting.delete(entry);
      batch.push(entry);
      bytes += entry.bytes;
      count += parts;
    }
    this.#waiting_bytes -= bytes;
    return batch;
  }

  async #commitBatch(batch: readonly Waiting<T, R>[]): Promise<void> {
    const waiting: (Waiting<T, R> | undefined)[] = [...batch];
    const answer = (index: number, result: R): void => {
      waiting[index]?.parked.wake(result);
      waiting[index] = undefined;
    };
    try {
      const items = batch.map((entry) => entry.item);
      const results = await this.#init.commit(items, answer);
      assert(results.length === batch.length, 'a commit answers every entry');
      this.batches_total += 1;
      this.entries_total += batch.length;
      results.forEach((result, index) => answer(index, result));
    } catch (error) {
      for (const entry of waiting) entry?.parked.fail(error);
    }
  }
}
