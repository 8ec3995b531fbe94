/**
 * Looks through the whole log for records that are not where the index says.
 *
 * Promise: a search looks to its end, also when whoever asked for it has left; only then is a record called missing. There
 * is one at a time, and it looks for everything that was asked for until it began: who asks while there is one for
 * others, or soon after, is told `not_ready`, and is served by the next one.
 * Bound: `WANTED_MAX` records at once; the next search begins `SEARCH_EVERY_MS` after the last one ended. Overflow:
 * `not_ready`. Cancellation: who waits leaves by its signal; the search ends by `close`.
 */
import { orAborted, isRonError, RonError, sched } from '@ron/kernel';
import type { RecordHead, SegmentLog } from '@ron/log';
import { hexOf } from './hex.ts';
import type { Place } from './place-index.ts';
import { placeOfHead } from './record-places.ts';
import { isOfKind } from './record-types.ts';
import { shardIdsOf } from './stripe.ts';
import type { Kind } from './volume.ts';

const SEARCH_EVERY_MS = 10_000;
const WANTED_MAX = 4096;

/** A record, and where it is not. */
export interface Wanted {
  readonly kind: Kind;
  readonly id: Uint8Array;
  readonly place: Place;
}

export interface LogSearchInit {
  log: SegmentLog;
  /** Told of each record that was asked for, when the search is over: where it may lie, newest first. */
  settle(wanted: Wanted, candidates: readonly Place[]): Promise<void>;
}

type WantedMap = Map<string, Wanted>;

export class LogSearch {
  readonly #init: LogSearchInit;
  readonly #stop = new AbortController();
  #wanted: WantedMap = new Map();
  #running: { readonly wanted: WantedMap; readonly done: Promise<void> } | undefined;
  #next_ms = -Infinity;

  constructor(init: LogSearchInit) {
    this.#init = init;
  }

  /** Resolves when the log was searched and what was found is settled. Throws `not_ready` when that has to wait. */
  async run(wanted: Wanted, signal: AbortSignal): Promise<void> {
    const key = `${wanted.kind} ${hexOf(wanted.id)}`;
    if (this.#running?.wanted.has(key) !== true) {
      if (this.#wanted.size < WANTED_MAX) this.#wanted.set(key, wanted);
      const wait_ms = this.#next_ms - sched.now_ms();
      if (this.#running !== undefined || wait_ms > 0 || !this.#wanted.has(key)) throw notSearched(wait_ms);
      this.#begin();
    }
    await orAborted(this.#running!.done, signal);
  }

  async close(): Promise<void> {
    this.#stop.abort(new RonError('not_ready', 'the volume is being closed'));
    await this.#running?.done.catch(() => undefined);
  }

  #begin(): void {
    const wanted = this.#wanted;
    this.#wanted = new Map();
    const done = this.#search(wanted).finally(() => {
      this.#running = undefined;
      this.#next_ms = sched.now_ms() + SEARCH_EVERY_MS;
    });
    // Nobody may be left to hear of it.
    done.catch(() => undefined);
    this.#running = { wanted, done };
  }

  async #search(wanted: WantedMap): Promise<void> {
    try {
      const candidates = await this.#candidates([...wanted.values()]);
      for (const [each, places] of candidates) {
        await this.#init.settle(
          each,
          places.toSorted((a, b) => b.seq - a.seq),
        );
      }
    } catch (error) {
      throw notSearched(SEARCH_EVERY_MS, error);
    }
  }

  async #candidates(wanted: readonly Wanted[]): Promise<ReadonlyMap<Wanted, Place[]>> {
    const { log } = this.#init;
    const candidates = new Map<Wanted, Place[]>(wanted.map((each) => [each, []]));
    const byId = Map.groupBy(wanted, ({ id }) => hexOf(id));
    const shards = wanted.filter(({ kind }) => kind === 'shard');
    const keep = (head: RecordHead, position: { segment: number; offset: number }, body: Buffer): void => {
      const named = byId.get(hexOf(head.id)) ?? [];
      for (const each of named) {
        if (isOfKind(head.type, each.kind)) candidates.get(each)!.push(placeOfHead(head, position));
      }
      if (shards.length === 0 || !isOfKind(head.type, 'shard')) return;
      const ids = new Set(shardIdsOf(body.subarray(0, head.payload_bytes)).map(hexOf));
      for (const each of shards) if (ids.has(hexOf(each.id))) candidates.get(each)!.push(placeOfHead(head, position));
    };
    for (const segment of log.files.numbers()) {
      try {
        await log.scanSegment(segment, keep, () => undefined, this.#stop.signal);
      } catch (error) {
        // Compaction has removed it meanwhile; what was needed of it lies elsewhere, and the index knows where.
        if (!isRonError(error, 'not_found')) throw error;
      }
    }
    return candidates;
  }
}

function notSearched(wait_ms: number, cause?: unknown): RonError {
  return new RonError('not_ready', 'a record is not where it should be, and the log could not be searched for it yet', {
    retry_after_ms: Math.max(1000, wait_ms),
    cause,
  });
}
