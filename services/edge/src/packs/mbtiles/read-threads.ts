/**
 * The threads that read tiles of MBTiles.
 *
 * Contract: every call ends within its deadline. A thread whose call is late is terminated and replaced; SQLite cannot be
 * interrupted, so it counts until its call returns, and the other thread serves meanwhile. A caller that leaves does not end
 * a thread: its call goes on, and the result is dropped. A call whose thread died is repeated once.
 * Bound: `THREADS` threads, `CALLS_MAX` calls that wait for each. Overflow: `busy`.
 * Cancellation: the signal of the caller ends its wait, the deadline ends the call.
 */
import { BlockingPool, isRonError, orAborted, type Deadline } from '@ron/kernel';
import type { DatabaseFile, TileResult } from './thread/calls.ts';

const THREADS = 2;
const CALLS_MAX = 128;

export interface ReadThreadsInit {
  readonly module: URL;
  /** A new deadline for one call. */
  readonly deadline: () => Deadline;
}

/** A thread, with the calls that it has not answered. */
interface ReadThread {
  readonly pool: BlockingPool;
  calls: number;
}

export class ReadThreads implements AsyncDisposable {
  readonly #init: ReadThreadsInit;
  readonly #threads: readonly ReadThread[];

  constructor(init: ReadThreadsInit) {
    this.#init = init;
    const { module } = init;
    this.#threads = Array.from({ length: THREADS }, () => ({
      pool: new BlockingPool('edge.mbtiles', { threads: 1, queue_max: CALLS_MAX, module }),
      calls: 0,
    }));
  }

  /** Opens a database in every thread, because its file may have another path later. */
  async open(file: DatabaseFile, signal: AbortSignal): Promise<void> {
    // Not within the deadline of a read: a thread takes long to start on a busy machine.
    await Promise.all(this.#threads.map(({ pool }) => pool.run('open', [file], signal)));
  }

  tile(file: DatabaseFile, zoom: number, column: number, row: number, signal: AbortSignal): Promise<TileResult> {
    const free = this.#threads.reduce((best, thread) => (thread.calls < best.calls ? thread : best));
    return this.#run(free, 'tile', [file, zoom, column, row], signal);
  }

  /** Closes a database in every thread. Never rejects: a thread that ended has closed it. */
  async forget(id: number, signal: AbortSignal): Promise<void> {
    await Promise.allSettled(this.#threads.map((thread) => this.#run(thread, 'close', [id], signal)));
  }

  async close(): Promise<void> {
    await Promise.all(this.#threads.map(({ pool }) => pool.close()));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  #run<T>(thread: ReadThread, fn: string, args: readonly unknown[], signal: AbortSignal): Promise<T> {
    if (signal.aborted) return Promise.reject(signal.reason);
    return orAborted(this.#call<T>(thread, fn, args), signal);
  }

  async #call<T>(thread: ReadThread, fn: string, args: readonly unknown[]): Promise<T> {
    // [edge I-4] The deadline ends the call, even if its caller has left.
    using due = this.#init.deadline();
    thread.calls += 1;
    try {
      return await thread.pool.run<T>(fn, args, due.signal);
    } catch (error) {
      if (!isRonError(error, 'internal')) throw error;
      // Its thread died. Reads have no effect, so the next thread repeats it.
      return await thread.pool.run<T>(fn, args, due.signal);
    } finally {
      thread.calls -= 1;
    }
  }
}
