/**
 * Keeps the records of this node in the DHT: provides new items at once, and all items once in every interval.
 *
 * Contract: a sweep visits the items in the order of their positions and saves its position after each batch, so that it
 * continues there after a crash. A sweep that was begun more than an interval ago begins anew, as its first records have
 * aged out. An item is read again before it is provided: one that is gone is not. A batch that no peer stored is tried
 * `TRIES_MAX` times, then it is left to another sweep. While no peer is known, nothing is tried.
 * Bound: `PENDING_MAX` new items. Overflow: the item is left to a sweep, which begins once the running one has ended. New items
 * that were pending at a crash are found in the same way.
 * Cancellation: `run` ends when its signal aborts; items under way are provided again after the next start.
 */
import { Notify, sched, sleep } from '@ron/kernel';
import type { IndexStore } from '../../store/index-store.ts';

export const PENDING_MAX = 4096;
/** Provider records are valid for 48 h: one missed sweep does no harm. */
export const INTERVAL_MS = 22 * 3600 * 1000;
const BATCH = 256;
const TRIES_MAX = 3;
const RETRY_MS = 5000;
/** How often the number of peers is checked while there is none. */
const PEERS_CHECK_MS = 1000;
/** How often the clock is checked: it may jump. */
const CLOCK_CHECK_MS = 60_000;
const START_BYTES = 8;

/** One item of the sweep, with its position. */
export interface Placed<T> {
  readonly item: T;
  readonly position: Uint8Array;
}

export interface ProvideLoopInit<T> {
  /** Names the cursor in the database. */
  readonly name: string;
  readonly store: Pick<IndexStore, 'readCursor' | 'saveCursor'>;
  /** The number of known peers. */
  readonly known: () => number;
  /** Items that are equal have the same key. */
  readonly keyOf: (item: T) => string;
  /** The item as it is now; undefined if it is gone. */
  readonly reread: (item: T) => Promise<T | undefined>;
  /** Items after the position, in order. */
  readonly page: (after: Uint8Array | undefined, limit: number) => Promise<readonly Placed<T>[]>;
  /** Returns how many of the items are stored at a peer. Paces itself. */
  readonly provide: (items: readonly T[], signal: AbortSignal) => Promise<number>;
  readonly warn: (error: unknown) => void;
}

/** The running sweep, or the last one. */
interface Progress {
  readonly began_ms: number;
  /** Undefined: no batch is done. */
  readonly position: Uint8Array | undefined;
  readonly isDone: boolean;
}

export class ProvideLoop<T> {
  readonly #init: ProvideLoopInit<T>;
  readonly #pending = new Map<string, T>();
  readonly #offered: Notify;
  /** Items were left to a sweep that has not begun. */
  #isBehind = false;
  #isMarked = false;
  #failures = 0;

  constructor(init: ProvideLoopInit<T>) {
    this.#init = init;
    this.#offered = new Notify(`${init.name}.offered`);
  }

  get pending(): number {
    return this.#pending.size;
  }

  /** Provides the items soon. */
  offer(items: Iterable<T>): void {
    for (const item of items) {
      if (this.#pending.size < PENDING_MAX) this.#pending.set(this.#init.keyOf(item), item);
      else this.#isBehind = true;
    }
    this.#offered.notifyOne();
  }

  async run(stopping: AbortSignal): Promise<void> {
    await this.#restoreMark(stopping);
    while (!stopping.aborted) {
      try {
        await this.#step(stopping);
      } catch (error) {
        if (stopping.aborted) return;
        this.#init.warn(error);
        await sleep(RETRY_MS, stopping).catch(() => undefined);
      }
    }
  }

  /** The mark says that items were pending; after a crash they are left to a sweep. */
  async #restoreMark(stopping: AbortSignal): Promise<void> {
    while (!stopping.aborted) {
      try {
        this.#isMarked = (await this.#init.store.readCursor(`${this.#init.name}_pending`)) !== undefined;
        this.#isBehind ||= this.#isMarked;
        return;
      } catch (error) {
        this.#init.warn(error);
        await sleep(RETRY_MS, stopping).catch(() => undefined);
      }
    }
  }

  async #step(stopping: AbortSignal): Promise<void> {
    await this.#setMark(this.#pending.size > 0 || this.#isBehind);
    if (this.#init.known() === 0) return await sleep(PEERS_CHECK_MS, stopping);
    if (this.#pending.size > 0) return await this.#providePending(stopping);
    const progress = await this.#readProgress();
    if (progress !== undefined && !progress.isDone) return await this.#sweepOn(progress, stopping);
    const due_ms = progress === undefined ? 0 : progress.began_ms + INTERVAL_MS - sched.wall_ms();
    if (due_ms <= 0 || this.#isBehind) return await this.#begin();
    await this.#offered.notified(stopping, { within_ms: Math.min(due_ms, CLOCK_CHECK_MS) });
  }

  async #providePending(stopping: AbortSignal): Promise<void> {
    const items = await this.#takePending();
    if (items.length === 0) return;
    let stored = 0;
    try {
      stored = await this.#init.provide(items, stopping);
    } finally {
      if (stored < items.length) this.#isBehind = true;
    }
  }

  /** The next items as they are now. If one cannot be read, all of them stay pending. */
  async #takePending(): Promise<T[]> {
    const taken = [...this.#pending].slice(0, BATCH);
    for (const [key] of taken) this.#pending.delete(key);
    try {
      const items: T[] = [];
      for (const [, item] of taken) {
        const current = await this.#init.reread(item);
        if (current !== undefined) items.push(current);
      }
      return items;
    } catch (error) {
      this.offer(taken.map(([, item]) => item));
      throw error;
    }
  }

  async #begin(): Promise<void> {
    this.#isBehind = false;
    await this.#save({ began_ms: sched.wall_ms(), position: undefined, isDone: false });
  }

  async #sweepOn(progress: Progress, stopping: AbortSignal): Promise<void> {
    const page = await this.#init.page(progress.position, BATCH);
    if (page.length === 0) return await this.#save({ ...progress, isDone: true });
    const items = page.map(({ item }) => item);
    const stored = await this.#init.provide(items, stopping);
    if (stored === 0 && ++this.#failures < TRIES_MAX) return await sleep(RETRY_MS, stopping);
    if (stored === 0) this.#isBehind = true;
    this.#failures = 0;
    await this.#save({ ...progress, position: page.at(-1)!.position });
  }

  async #setMark(isSet: boolean): Promise<void> {
    if (isSet === this.#isMarked) return;
    await this.#init.store.saveCursor(`${this.#init.name}_pending`, isSet ? Uint8Array.of(1) : undefined);
    this.#isMarked = isSet;
  }

  /** Undefined: a sweep is due, from the beginning. A start in the future is that of a clock that was wrong. */
  async #readProgress(): Promise<Progress | undefined> {
    const bytes = await this.#init.store.readCursor(this.#init.name);
    if (bytes === undefined || bytes.length <= START_BYTES) return undefined;
    const buffer = Buffer.from(bytes);
    const began_ms = Number(buffer.readBigUInt64BE());
    const age_ms = sched.wall_ms() - began_ms;
    if (age_ms < 0 || age_ms >= INTERVAL_MS) return undefined;
    const position = buffer.subarray(START_BYTES + 1);
    return { began_ms, position: position.length > 0 ? position : undefined, isDone: buffer[START_BYTES] === 1 };
  }

  async #save({ began_ms, position, isDone }: Progress): Promise<void> {
    const start = Buffer.alloc(START_BYTES + 1);
    start.writeBigUInt64BE(BigInt(began_ms));
    start[START_BYTES] = isDone ? 1 : 0;
    const bytes = isDone || position === undefined ? start : Buffer.concat([start, position]);
    await this.#init.store.saveCursor(this.#init.name, bytes);
  }
}
