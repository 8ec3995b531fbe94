/**
 * The task `cache_janitor`: the cache's own work, and the purge of expired state beside it.
 *
 * Contract: every interval the cache drops expired answers and the database removes expired rows, `ROWS_MAX` in a call, until
 * none is left. [index I-12] In amnesia the interval is `amnesia.purge_interval_ms`. A purge that fails is logged and repeated
 * after the next interval. If one part of the task fails, the other ends too.
 * Bound: one call of the database at a time. Cancellation: `stopping`, also between two calls.
 */
import { RonError, sched, sleep } from '@ron/kernel';
import type { IndexConfig } from './config.ts';
import type { IndexStore } from './store/index-store.ts';

const ROWS_MAX = 1000;
/** Provider records live for two days, so the exact time matters little on a disk. */
const INTERVAL_MS = 60_000;

export interface JanitorInit {
  readonly current: { readonly value: Pick<IndexConfig, 'amnesia'> };
  readonly cache: { run(stopping: AbortSignal): Promise<void>; purge(): void };
  readonly store: Pick<IndexStore, 'purgeExpired'>;
  readonly onProblem: (error: unknown) => void;
}

export async function runJanitor(init: JanitorInit, stopping: AbortSignal): Promise<void> {
  const ends = new AbortController();
  const signal = AbortSignal.any([stopping, ends.signal]);
  const parts = [init.cache.run(signal), purgeForever(init, signal)];
  try {
    await Promise.race(parts);
  } finally {
    ends.abort(new RonError('canceled', 'the janitor has ended'));
    await Promise.allSettled(parts);
  }
}

async function purgeForever({ current, cache, store, onProblem }: JanitorInit, signal: AbortSignal): Promise<void> {
  for (;;) {
    const { enabled, purge_interval_ms } = current.value.amnesia;
    await sleep(enabled ? purge_interval_ms : INTERVAL_MS, signal, 'purge');
    cache.purge();
    await purgeRows(store, signal).catch(onProblem);
  }
}

async function purgeRows(store: JanitorInit['store'], signal: AbortSignal): Promise<void> {
  let removed: number;
  do {
    removed = await store.purgeExpired(sched.wall_ms(), ROWS_MAX);
  } while (removed === ROWS_MAX && !signal.aborted);
}
