/**
 * Reclaims space: expires objects, drops contents that no object names, and rewrites the segments that mostly consist of
 * them.
 *
 * Contract: contents of objects, pinned objects, and contents that a writer or an upload relies on are never reclaimed. Nothing is
 * expired or reclaimed unless every part of the volume has answered completely: a run that meets a part which is away, or
 * that comes or goes during it, ends with `not_ready` and names it. Reads and writes continue meanwhile: there is no
 * lock, they are ordered against it record by record.
 * Bound: two bytes of memory for each content of the volume, at most `mark_bytes_max`: beyond that a run keeps a part of the
 * garbage, another part each time. Reads and writes are paced by one bucket. Overflow: one run at a time, the next is
 * `conflict`.
 * Cancellation: by the signal, at any wait. What was done until then stays done.
 *
 * Uploads lease their chunks when they are opened: that has to happen before the first run, so it asks for them.
 */
import { RonError, sched, TokenBucket } from '@ron/kernel';
import type { Address } from '@ron/proto';
import { CompletenessGuard } from './completeness.ts';
import { IdFilter } from './id-filter.ts';
import { markNeeded } from './mark.ts';
import type { ObjectStore } from '../objects/object-store.ts';
import type { Reclaimed } from '../volume/volume.ts';

const MIB = 1024 * 1024;
const LIST_COUNT = 256;
/** What a line of a listing counts as, in bytes, when the work is paced. */
const LINE_COST_BYTES = 128;

/** What else holds on to chunks. It is told first, so that it lets go of what has expired. */
export interface Holder {
  expire(): Promise<number>;
}

export interface CompactorInit {
  store: ObjectStore;
  /** Undefined only where there are none. */
  uploads: Holder | undefined;
  /** Segments with a smaller part of needed bytes are rewritten. Default 0.5. */
  live_ratio?: number;
  /** A segment that is still being written is rewritten only when it wastes this much. Default 16 MiB. */
  seal_bytes_min?: number;
  /** Paces reading and writing, in bytes. Default: 50 MiB/s, in steps of 4 MiB. */
  bucket?: TokenBucket;
  /** Memory for marking needed contents. Default 512 MiB: enough for 256 million. */
  mark_bytes_max?: number;
}

export type CompactionPhase = 'idle' | 'expire' | 'mark' | 'rewrite';

export interface CompactionReport extends Reclaimed {
  readonly phase: CompactionPhase;
  /** Objects that were removed because their lease had run out. */
  readonly expired: number;
  /** Objects that were looked at. */
  readonly objects: number;
  /** Some objects whose manifest is damaged. While there are any, no content is reclaimed: it might be theirs. */
  readonly unreadable: readonly Address[];
  /** Objects whose manifest or a chunk is missing. */
  readonly broken: number;
  /** It is known what every object is made of. */
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

  /** How far the run under way has come, or what the last one did. */
  get report(): CompactionReport {
    return this.#report;
  }

  /** Objects that cannot be read whole, as the last look at all of them found; undefined before the first. */
  get broken(): number | undefined {
    return this.#broken;
  }

  async run(signal: AbortSignal): Promise<CompactionReport> {
    if (this.#report.phase !== 'idle') throw new RonError('conflict', 'a compaction is under way');
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
      // In one step with the removals: a volume that is away may have a later put, or a pin.
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
    const marked = await markNeeded({ volume, pages, into, pace, signal });
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
