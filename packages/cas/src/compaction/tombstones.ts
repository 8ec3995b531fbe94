/**
 * Drops tombstones: entries of the index that say that an object or a note was removed, a pin taken back, a stripe ended.
 *
 * Contract: a tombstone goes only when no segment exists that may hold a superseded record of its id, so replaying the
 * log without it brings nothing back, and only while `mayForgetRemovals` allows it. Its record in the log is garbage from
 * then on; when it is replayed before compaction has removed it, the tombstone is there again and hides nothing.
 * Bound: a page of the index at a time, paced. Cancellation: by `pace`.
 */
import type { SegmentLog } from '@ron/log';
import type { Place } from '../index/entry.ts';
import type { PlaceIndex } from '../index/place-index.ts';
import { isTombstone } from '../volume/record-types.ts';
import type { ReclaimInit } from '../volume/volume.ts';

const ENTRY_COST_BYTES = 128;

export interface TombstonesInit extends Pick<ReclaimInit, 'mayForgetRemovals' | 'pace'> {
  log: SegmentLog;
  index: PlaceIndex;
  flush(): Promise<void>;
}

/** Which tombstones can go. Segments that are removed later make it too careful, never too bold. */
export class Droppable {
  readonly #init: Pick<ReclaimInit, 'mayForgetRemovals'>;
  readonly #segments: readonly number[];

  constructor({ log, ...init }: Pick<TombstonesInit, 'log' | 'mayForgetRemovals'>) {
    this.#init = init;
    this.#segments = log.files.numbers();
  }

  /** Whether no segment, apart from one that goes together with the tombstone, may hold a superseded record. */
  canGo({ dead_from = 0, dead_to = 0 }: Place, leaving?: number): boolean {
    if (this.#init.mayForgetRemovals?.() === false) return false;
    if (dead_from === 0) return true;
    let at = this.#firstFrom(dead_from);
    if (this.#segments[at] === leaving) at += 1;
    const next = this.#segments[at];
    return next === undefined || next > dead_to;
  }

  #firstFrom(segment: number): number {
    let [from, to] = [0, this.#segments.length];
    while (from < to) {
      const middle = (from + to) >>> 1;
      if (this.#segments[middle]! < segment) from = middle + 1;
      else to = middle;
    }
    return from;
  }
}

export async function dropTombstones(init: TombstonesInit): Promise<void> {
  const droppable = new Droppable(init);
  await init.flush();
  for (const table of ['object', 'pin', 'stripe', 'shard', 'note'] as const) {
    for (let after: Uint8Array | undefined; ;) {
      const { entries, last } = await init.index.page(table, after);
      for (const [id, place] of entries) {
        if (isTombstone(place.type) && droppable.canGo(place)) init.index.removeListed(table, id, place);
      }
      if (last === undefined) break;
      after = last;
      await init.pace(entries.length * ENTRY_COST_BYTES);
    }
  }
  await init.flush();
}
