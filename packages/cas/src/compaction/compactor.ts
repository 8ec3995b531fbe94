/**
 * Compaction: expires objects, drops unreachable contents, and rewrites the segments that mostly consist of them.
 *
 * Contract: contents of objects, pinned objects and leased contents are never reclaimed. Nothing is expired or reclaimed
 * unless every part of the volume has answered completely: if a part is absent, or joins or leaves during a run, the run ends
 * with `not_ready` and names it. Reads and writes continue: they are ordered against compaction record by record, without a
 * lock. Uploads must be open before the first run, because opening leases their chunks.
 * Bound: two bytes of memory for each content of the volume, at most `mark_bytes_max`; beyond that a run keeps a part of the
 * garbage, a different part each time. Reads and writes are paced by one token bucket. Overflow: a second concurrent run is
 * refused with `conflict`. Cancellation: by the signal, at any wait; completed work is kept.
 */
import { RonError, sched, TokenBucket } from '@ron/kernel';
import type { Address } from '@ron/proto';
import { CompletenessGuard } from './completeness.ts';
import { IdFilter } from './id-filter.ts';
import { markReachable } from './mark-reachable.ts';
import type { ObjectStore } from '../objects/object-store.ts';
import type { Reclaimed } from '../volume/volume.ts';

const MIB = 1024 * 1024;
const LIST_COUNT = 256;
/** The cost of an inventory entry in bytes, for pacing. */
const LINE_COST_BYTES = 128;

/** Another holder of leases. Each run first makes it release expired ones. */
export interface Holder {
  expire(): Promise<number>;
}

export interface CompactorInit {
  store: ObjectStore;
  /** Undefined only for a store without uploads. */
  uploads: Holder | undefined;
  /** Segments with a smaller part of needed bytes are rewritten. Default 0.5. */
  live_ratio?: number;
  /** A segment that is still being written is rewritten only when it wastes this much. Default 16 MiB. */
  seal_bytes_min?: number;
  /** Paces reads and writes, in bytes. Default: 50 MiB/s, with bursts of 4 MiB. */
  bucket?: TokenBucket;
  /** Memory for marking needed contents. Default 512 MiB: enough for 256 million. */
  mark_bytes_max?: number;
}

export type CompactionPhase = 'idle' | 'expire' | 'mark' | 'rewrite';

export interface CompactionReport extends Reclaimed {
  readonly phase: CompactionPhase;
  /** Objects that were removed because their lease had expired. */
  readonly expired: number;
  /** Objects that were visited. */
  readonly objects: number;
  /** Objects with a damaged manifest, the first few. While there are any, no content is reclaimed: it might be theirs. */
  readonly unreadable: readonly Address[];
  /** Objects whose manifest or a chunk is missing. */
  readonly broken: number;
  /** The chunks of every object are known. */
  readonly isComplete: boolean;
}

const NOTHING: CompactionReport = {
  phase: 'idle',
  expired: 0,
  objects: 0,
  unreadable: [],
  broken: 0,
  isComplete: true,
  segments: 0,
  moved_bytes: 0,
  freed_bytes: 0,
};

export class Compactor {
  readonly #init: CompactorInit;
  readonly bucket: TokenBucket;
  #report: CompactionReport = NOTHING;
  #broken: number | undefined;

  constructor(init: CompactorInit) {
    this.#init = init;
    this.bucket = init.bucket ?? new TokenBucket('compaction', { rate_per_s: 50 * MIB, burst: 4 * MIB });
  }

  /** The progress of the current run, or the result of the last one. */
  get report(): CompactionReport {
    return this.#report;
  }

  /** Objects with missing chunks, counted by the last complete run; undefined before the first. */
  get broken(): number | undefined {
    return this.#broken;
  }

  async run(signal: AbortSignal): Promise<CompactionReport> {
    if (this.#report.phase !== 'idle') throw new RonError('conflict', 'a compaction is in progress');
    const guard = new CompletenessGuard(this.#init.store.volume);
    this.#report = { ...NOTHING, phase: 'expire' };
    try {
      guard.check();
      await this.#init.uploads?.expire();
      await this.#expireObjects(guard, signal);
      await this.#sweep(guard, signal);
    } finally {
      this.#report = { ...this.#report, phase: 'idle' };
    }
    return this.#report;
  }

  async #sweep(guard: CompletenessGuard, signal: AbortSignal): Promise<void> {
    const { leases } = this.#init.store;
    const pages = leases.beginSweep();
    try {
      const needed = await this.#mark(pages, guard, signal);
      await this.#reclaim(needed, guard, signal);
    } finally {
      leases.endSweep();
    }
  }

  async #expireObjects(guard: CompletenessGuard, signal: AbortSignal): Promise<void> {
    const { store } = this.#init;
    if (store.lease_ms === undefined) return;
    const before_s = Math.floor((sched.wall_ms() - store.lease_ms) / 1000);
    let after: Uint8Array | undefined;
    do {
      signal.throwIfAborted();
      const listed = await store.volume.inventory('object', after, LIST_COUNT);
      // In the same synchronous step as the removals: an absent volume may have a later put, or a pin.
      guard.check();
      const old = listed.filter((held) => held.put_s < before_s);
      const expired = await Promise.all(old.map((held) => store.expire(held.id, before_s, signal)));
      this.#report = { ...this.#report, expired: this.#report.expired + expired.filter(Boolean).length };
      await this.#pace(listed.length * LINE_COST_BYTES, signal);
      after = listed.at(-1)?.id;
    } while (after !== undefined);
  }

  async #mark(pages: readonly Uint8Array[], guard: CompletenessGuard, signal: AbortSignal): Promise<IdFilter> {
    this.#report = { ...this.#report, phase: 'mark' };
    const { volume } = this.#init.store;
    const ids = volume.stats().contents;
    const into = new IdFilter({ ids, bytes_max: this.#init.mark_bytes_max ?? 512 * MIB });
    const pace = async (bytes: number): Promise<void> => {
      await this.#pace(bytes, signal);
      guard.check();
    };
    const marked = await markReachable({ volume, pages, into, pace, signal });
    guard.check();
    this.#report = { ...this.#report, ...marked };
    this.#broken = marked.broken;
    return into;
  }

  async #reclaim(needed: IdFilter, guard: CompletenessGuard, signal: AbortSignal): Promise<void> {
    this.#report = { ...this.#report, phase: 'rewrite' };
    const { store, live_ratio, seal_bytes_min } = this.#init;
    const { isComplete } = this.#report;
    const reclaimed = await store.volume.reclaim({
      isNeeded: (id) => {
        guard.check();
        return !isComplete || needed.has(id) || !store.leases.isFree(id);
      },
      live_ratio: live_ratio ?? 0.5,
      seal_bytes_min: seal_bytes_min ?? 16 * MIB,
      pace: (bytes) => this.#pace(bytes, signal),
      onProgress: (progress) => (this.#report = { ...this.#report, ...progress }),
      signal,
    });
    this.#report = { ...this.#report, ...reclaimed };
  }

  /** Yields to other tasks first, since a take from a full bucket does not wait. */
  async #pace(bytes: number, signal: AbortSignal): Promise<void> {
    await sched.pause('compaction.pace');
    for (let rest = bytes; rest > 0; rest -= this.bucket.burst) {
      await this.bucket.take(Math.min(rest, this.bucket.burst), signal);
    }
  }
}
