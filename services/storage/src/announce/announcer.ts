/**
 * Announces the objects of this node to its index: changed ones at once, all of them in a paced walk.
 *
 *     engine --> changed(4096) --> announcer --> POST /announce of index
 *                                     ^ walk over all objects: at start, after a lost call, an overflow, a new epoch
 *
 * Contract: the index converges to the provided objects. A change is sent within `CHANGE_DELAY_MS` and one call. A walk
 * sends ranges, in which the index withdraws the objects that are not listed: so a withdrawal that was lost with a process is
 * repaired as well. One call at a time, so a walk never overtakes a newer change. The index may be absent for any time:
 * reads and writes never wait for it.
 * Bound: `CHANGES_MAX` addresses per call; the walk takes `WALK_PER_S` objects per second. Overflow: of the queue, by a walk.
 * Cancellation: by the signal of `run`.
 */
import { isRonError, sched, sleep, TokenBucket } from '@ron/kernel';
import { formatAddress, type Address, type AnnounceDto, type AnnouncedDto } from '@ron/proto';
import type { ChangedObjects } from './changed-objects.ts';
import { ObjectWalk, type Position } from './object-walk.ts';
import type { ProvidedObjects } from './provided-objects.ts';
import type { WalkCursor } from './walk-cursor.ts';

/** The walk shares the disks with clients. */
const WALK_PER_S = 200;
const WALK_BATCH = 100;
/** The time in which the walk may send one more batch. */
const WALK_MS = (WALK_BATCH / WALK_PER_S) * 1000;
const CHANGES_MAX = 500;
/** Collects changes of a burst into one call. */
const CHANGE_DELAY_MS = 100;
/** Before the next call after a failed one, give or take a half. */
const RETRY_MS = 800;
/** An empty announcement asks for the epoch this often, because an idle node has nothing else to announce. */
const EPOCH_EVERY_MS = 5000;
/** How often the walk stores its position. */
const SAVE_EVERY = 1000;
/** The index may be starting. */
const PROBLEM_AFTER_MS = 10_000;

export interface AnnouncerInit {
  readonly objects: ProvidedObjects;
  readonly changed: ChangedObjects;
  readonly cursor: WalkCursor;
  /** One call of the index, with its deadline and retries. */
  readonly send: (announcement: AnnounceDto, stopping: AbortSignal) => Promise<AnnouncedDto>;
  /** Runs a read of the object store with a deadline. */
  readonly read: <T>(work: (signal: AbortSignal) => Promise<T>, stopping: AbortSignal) => Promise<T>;
  /** Called once per outage that lasts `PROBLEM_AFTER_MS`: while a node starts, index is ready later than storage. */
  readonly onProblem: (error: unknown) => void;
}

export class Announcer {
  readonly #init: AnnouncerInit;
  readonly #walk: ObjectWalk;
  readonly #pace = new TokenBucket('announce', { rate_per_s: WALK_PER_S, burst: WALK_BATCH });
  #epoch: string | undefined;
  #unsaved = 0;
  #failing: { readonly since_ms: number; readonly why: string; readonly isReported: boolean } | undefined;
  announced_total = 0;
  withdrawn_total = 0;
  failed_total = 0;

  constructor(init: AnnouncerInit) {
    this.#init = init;
    this.#walk = new ObjectWalk(init.cursor.position);
    init.changed.onOverflow = () => this.requestWalk();
  }

  get isWalking(): boolean {
    return this.#walk.isDue;
  }

  get walks_total(): number {
    return this.#walk.completed_total;
  }

  /** Why the index does not learn of changes. */
  get problem(): string | undefined {
    if (this.#failing === undefined || sched.now_ms() - this.#failing.since_ms < PROBLEM_AFTER_MS) return undefined;
    return `index does not accept announcements: ${this.#failing.why}`;
  }

  /** Announces all objects again, for example because a volume joined. */
  requestWalk(): void {
    this.#walk.request();
    this.#init.changed.wake();
  }

  async run(stopping: AbortSignal): Promise<void> {
    const { changed, onProblem } = this.#init;
    for (;;) {
      try {
        await this.#step(stopping);
        this.#failing = undefined;
      } catch (error) {
        stopping.throwIfAborted();
        this.failed_total += 1;
        const why = error instanceof Error ? error.message : 'unknown';
        const { since_ms, isReported } = this.#failing ?? { since_ms: sched.now_ms(), isReported: false };
        const isLong = sched.now_ms() - since_ms >= PROBLEM_AFTER_MS;
        if (isLong && !isReported) onProblem(error);
        this.#failing = { since_ms, why, isReported: isReported || isLong };
        // The call may have taken effect, or may still do so after a newer one.
        this.#walk.request();
        await sleep(RETRY_MS * (0.5 + sched.random()), stopping, 'announce.retry');
      }
      if (changed.depth === 0) await changed.wait(stopping, this.#walk.isDue ? WALK_MS : EPOCH_EVERY_MS);
    }
  }

  async #step(stopping: AbortSignal): Promise<void> {
    const { depth } = this.#init.changed;
    if (depth > 0) {
      if (depth < CHANGES_MAX) await sleep(CHANGE_DELAY_MS, stopping, 'announce.collect');
      await this.#sendChanged(stopping);
    }
    if (!this.#walk.isDue && depth === 0) await this.#send({ entries: [] }, stopping);
    if (this.#walk.isDue && this.#pace.tryTake(WALK_BATCH)) await this.#sendWalk(stopping);
  }

  async #sendChanged(stopping: AbortSignal): Promise<void> {
    const { objects, changed, read } = this.#init;
    const left = new Set(changed.take(CHANGES_MAX));
    try {
      const { entries, unreadable } = await read((signal) => objects.describe([...left], signal), stopping);
      const kept = new Set([...unreadable, ...entries.map(({ address }) => address)]);
      const withdraw = [...left].filter((address) => !kept.has(address));
      if (unreadable.length > 0) this.#walk.request();
      // First, and in a call of their own: index refuses entries beyond its quota, and withdrawals make room.
      if (withdraw.length > 0) await this.#send({ entries: [], withdraw }, stopping);
      for (const address of withdraw) left.delete(address);
      if (entries.length > 0) await this.#send({ entries }, stopping);
    } catch (error) {
      // The walk retries objects beyond the quota of index; here they would hold up later changes.
      if (!isRonError(error, 'storage_full')) for (const address of left) changed.note(address);
      throw error;
    }
  }

  async #sendWalk(stopping: AbortSignal): Promise<void> {
    const { objects, read } = this.#init;
    const step = this.#walk.begin();
    if (step === undefined) return;
    const { addresses, next, isComplete } = await read(() => objects.list(step.after, WALK_BATCH), stopping);
    const { entries, unreadable } = await read((signal) => objects.describe(addresses, signal), stopping);
    const range = { after: addressAt(step.after), through: addressAt(next) };
    try {
      await this.#send({ entries, ...(isComplete && unreadable.length === 0 && { range }) }, stopping);
    } catch (error) {
      // The quota of index is used up. Withdrawals in later ranges make room.
      if (isRonError(error, 'storage_full')) this.#walk.advance(next);
      throw error;
    }
    this.#walk.advance(next);
    this.#unsaved += addresses.length;
    if (next !== undefined && this.#unsaved < SAVE_EVERY) return;
    this.#unsaved = 0;
    await this.#init.cursor.save(next);
  }

  async #send(announcement: AnnounceDto, stopping: AbortSignal): Promise<void> {
    const { epoch } = await this.#init.send(announcement, stopping);
    this.announced_total += announcement.entries.length;
    this.withdrawn_total += announcement.withdraw?.length ?? 0;
    // The index has lost earlier announcements.
    if (this.#epoch !== undefined && this.#epoch !== epoch) this.#walk.request();
    this.#epoch = epoch;
  }
}

const addressAt = (position: Position): Address | null => (position === undefined ? null : formatAddress(position));
