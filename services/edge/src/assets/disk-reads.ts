/**
 * Limits the reads of packs and cached assets from disk.
 *
 * Contract: `run` and the first batch of `batches` are refused at once if as many reads are in progress as allowed. A later batch
 * of an answer that has begun waits instead, because it cannot be refused any more. A read holds its place while it reads, not
 * while its client receives the bytes.
 * Bound: `reads_max` reads; waits are bounded by the requests in flight. Overflow: 429 `busy`, counted.
 * Cancellation: the signal of each read.
 */
import type { Batch } from '@ron/ingress';
import { FairSemaphore, RonError } from '@ron/kernel';

/** Answers that have begun and wait for their next batch. More than requests can be in flight. */
const WAITING_MAX = 65_536;
const KEY = 'read';

export class DiskReads {
  readonly #reads: FairSemaphore;
  readonly #reads_max: number;
  busy_total = 0;

  constructor(reads_max: number) {
    this.#reads_max = reads_max;
    this.#reads = new FairSemaphore('reads', { limit: reads_max, capacity: WAITING_MAX, keys_max: 1 });
  }

  get depth(): number {
    return this.#reads.in_progress;
  }

  async run<T>(signal: AbortSignal, read: () => Promise<T>): Promise<T> {
    // [edge I-9] A disk that is too slow for its requests refuses them; they do not queue.
    if (this.#reads.in_progress >= this.#reads_max) {
      this.busy_total += 1;
      throw new RonError('busy', 'too many reads from disk are in progress');
    }
    return await this.#reads.run(KEY, 1, signal, read);
  }

  /** The batches of a source, each read in a place of its own. */
  batches(signal: AbortSignal, open: () => AsyncIterable<Batch>): AsyncIterable<Batch> {
    return { [Symbol.asyncIterator]: () => this.#iterate(signal, open) };
  }

  async *#iterate(signal: AbortSignal, open: () => AsyncIterable<Batch>): AsyncGenerator<Batch, void, void> {
    const source = open()[Symbol.asyncIterator]();
    let hasEnded = false;
    try {
      const next = async (): Promise<IteratorResult<Batch>> => await source.next();
      for (let result = await this.run(signal, next); ; result = await this.#reads.run(KEY, 1, signal, next)) {
        if (result.done === true) {
          hasEnded = true;
          return;
        }
        yield result.value;
      }
    } finally {
      if (!hasEnded) await source.return?.();
    }
  }

  close(): void {
    this.#reads.close();
  }
}
