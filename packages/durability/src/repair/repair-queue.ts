/**
 * What has to be repaired: a bounded queue in which the more urgent comes first, and nothing twice.
 *
 * Promise: jobs come out by class, the loss of last copies first, and first in first out within a class. A job whose thing
 * is queued or being worked on is not taken in again, by any planner; if it is more urgent than thought, it moves up.
 * Bound: `capacity` jobs, besides those being worked on. Overflow: a new job displaces the newest of the lowest class below
 * its own; when there is none, the new one is not taken in. Both are counted, and planned again the next time.
 * Cancellation: every wait rejects with the signal's reason, and nothing is lost by it. `close` lets takers drain.
 */
import { assert, touch, WaitList } from '@ron/kernel';

/** The most urgent first: last copies, copies that are missing, parity that is missing. */
export const REPAIR_CLASSES = ['last', 'rf', 'parity'] as const;
export type RepairClass = (typeof REPAIR_CLASSES)[number];

export interface RepairJob {
  /** `stripe`: the knowledge of one, which a volume has lost. */
  readonly kind: 'content' | 'object' | 'shard' | 'stripe';
  readonly id: Uint8Array;
  readonly class: RepairClass;
  /** How large it is, as far as is known. Default: a chunk. */
  readonly bytes?: number;
  /** The id of a volume whose copy could not be read: it is not counted. */
  readonly suspect?: string;
}

export type Offered = 'queued' | 'known' | 'skipped';

export interface RepairQueueInit {
  /** Default 256. */
  capacity?: number;
  /** Told of each job that found no room, or lost its own. Must not throw. */
  onSkipped?: (job: RepairJob) => void;
}

const keyOf = (job: RepairJob): string => `${job.kind} ${Buffer.from(job.id).toString('latin1')}`;
const withSuspect = (job: RepairJob, suspect: string | undefined): RepairJob =>
  job.suspect !== undefined || suspect === undefined ? job : { ...job, suspect };
const rankOf = (job: RepairJob): number => REPAIR_CLASSES.indexOf(job.class);

export class RepairQueue implements AsyncDisposable {
  readonly capacity: number;
  readonly #onSkipped: ((job: RepairJob) => void) | undefined;
  /** By class. */
  readonly #waiting: RepairJob[][] = REPAIR_CLASSES.map(() => []);
  readonly #queued = new Map<string, RepairJob>();
  readonly #inflight = new Set<string>();
  readonly #takers: WaitList<RepairJob | undefined, undefined>;
  readonly #planners: WaitList<void, undefined>;
  #skipped_total = 0;
  #closed = false;

  constructor(init: RepairQueueInit = {}) {
    this.capacity = init.capacity ?? 256;
    this.#onSkipped = init.onSkipped;
    this.#takers = new WaitList({ owner: this, label: 'repair.take' });
    this.#planners = new WaitList({ owner: this, label: 'repair.room' });
  }

  get depth(): number {
    return this.#queued.size;
  }

  get inflight(): number {
    return this.#inflight.size;
  }

  get skipped_total(): number {
    return this.#skipped_total;
  }

  get isIdle(): boolean {
    return this.#queued.size === 0 && this.#inflight.size === 0;
  }

  get hasRoom(): boolean {
    return this.#queued.size < this.capacity;
  }

  /** Never waits. */
  offer(job: RepairJob): Offered {
    touch(this);
    const key = keyOf(job);
    if (this.#closed || this.#inflight.has(key)) return 'known';
    const queued = this.#queued.get(key);
    // [storage I-3] A full queue sheds the least urgent job and counts it.
    if (queued === undefined && !this.hasRoom && !this.#displace(rankOf(job))) return this.#skip(job);
    if (queued === undefined) this.#add(job);
    else if (rankOf(queued) <= rankOf(job)) return this.#suspect(queued, job.suspect);
    else {
      this.#drop(queued);
      this.#add(withSuspect(job, queued.suspect));
    }
    this.#serve();
    return 'queued';
  }

  /** The most urgent job; undefined when the queue is closed and empty. `done` when it is over. */
  take(signal: AbortSignal): Promise<RepairJob | undefined> {
    touch(this);
    if (signal.aborted) return Promise.reject(signal.reason);
    const job = this.#next();
    if (job !== undefined || this.#closed) return Promise.resolve(job);
    return this.#takers.park(signal, undefined);
  }

  /** From now on the same job may be planned again. */
  done(job: RepairJob): void {
    touch(this);
    assert(this.#inflight.delete(keyOf(job)), 'a job is done once');
  }

  /** Waits until there is room. */
  async room(signal: AbortSignal): Promise<void> {
    touch(this);
    signal.throwIfAborted();
    while (!this.hasRoom && !this.#closed) await this.#planners.park(signal, undefined);
  }

  /** Takes nothing in any more; what is queued can still be taken. */
  close(): void {
    touch(this);
    if (this.#closed) return;
    this.#closed = true;
    while (this.#takers.size > 0) this.#takers.wakeFirst(undefined);
    while (this.#planners.size > 0) this.#planners.wakeFirst(undefined);
    this.#takers.close();
    this.#planners.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.close();
  }

  #serve(): void {
    while (this.#takers.size > 0) {
      const job = this.#next();
      if (job === undefined) return;
      this.#takers.wakeFirst(job);
    }
  }

  #next(): RepairJob | undefined {
    const job = this.#waiting.find((jobs) => jobs.length > 0)?.shift();
    if (job === undefined) return undefined;
    this.#queued.delete(keyOf(job));
    this.#inflight.add(keyOf(job));
    if (this.#planners.size > 0) this.#planners.wakeFirst(undefined);
    return job;
  }

  /** Makes room at the cost of the newest job of the lowest class below `rank`. */
  #displace(rank: number): boolean {
    const lowest = this.#waiting.findLastIndex((jobs) => jobs.length > 0);
    if (lowest <= rank) return false;
    const job = this.#waiting[lowest]!.at(-1)!;
    this.#drop(job);
    this.#skip(job);
    return true;
  }

  #add(job: RepairJob): void {
    this.#queued.set(keyOf(job), job);
    this.#waiting[rankOf(job)]!.push(job);
  }

  /** It is queued already; that a copy could not be read may be news. */
  #suspect(queued: RepairJob, suspect: string | undefined): 'known' {
    const jobs = this.#waiting[rankOf(queued)]!;
    const told = withSuspect(queued, suspect);
    jobs[jobs.indexOf(queued)] = told;
    this.#queued.set(keyOf(queued), told);
    return 'known';
  }

  #drop(job: RepairJob): void {
    const jobs = this.#waiting[rankOf(job)]!;
    jobs.splice(jobs.indexOf(job), 1);
    this.#queued.delete(keyOf(job));
  }

  #skip(job: RepairJob): 'skipped' {
    this.#skipped_total += 1;
    this.#onSkipped?.(job);
    return 'skipped';
  }
}
