/**
 * Runs a search to its end.
 *
 * Microtasks can be run by hand only from a macrotask, so a search hops to one, and gives the event loop a turn every
 * quarter second. Each schedule runs synchronously.
 *
 *     const search = new Search(build, searchInit({ hash: true }));
 *     await finish(search);
 *     search.broken ?? search.exhausted;
 */
import { onMacrotask } from '../run/microtasks.ts';
import { releaseRejections, trapRejections } from '../run/rejections.ts';
import type { Search } from './search.ts';

const SLICE_MS = 250;

/** Runs `search` to its end, or until it has taken `steps_max` steps. */
export async function finish(search: Search, steps_max = Infinity): Promise<void> {
  trapRejections();
  try {
    while (!search.isOver && search.steps < steps_max) await onMacrotask(() => search.runFor(SLICE_MS));
  } finally {
    releaseRejections();
  }
}
