/**
 * A bounded priority queue of repairs without duplicates.
 *
 * Contract: jobs are taken by class, last copies first, and first in, first out within a class. A job whose record is queued
 * or in progress is not queued again; if it is more urgent than the queued one, it moves up.
 * Bound: `capacity` jobs, besides those in progress. Overflow: a new job displaces the newest one of the lowest class below
 * its own; if there is none, the new job is dropped. Both are counted, and planned again later.
 * Cancellation: every wait rejects with the signal's reason, and loses nothing. `close` lets takers drain the queue.
 */
import { assert, touch, WaitList } from '@ron/kernel';
import { REPAIR_CLASSES, type RepairClass } from '@ron/proto';

export interface RepairJob {
  /** `stripe`: the layout of a stripe, which a volume has lost. */
  readonly kind: 'content' | 'object' | 'shard' | 'stripe';
  readonly id: Uint8Array;
  readonly class: RepairClass;
  /** The size of the record, if known. Default: that of a chunk. */
  readonly bytes?: number;
  /** The id of a volume whose copy could not be read: it is not counted. */
  readonly suspect?: string;
}

export type Offered = 'queued' | 'known' | 'skipped';

export interface RepairQueueInit {
  /** Default 256. */
  capacity?: number;
  /** Called for each job that was dropped. Must not throw. */
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

  /** The most urgent job; undefined once the queue is closed and empty. The caller calls `done` when the job has ended. */
  take(signal: AbortSignal): Promise<RepairJob | undefined> {
    touch(this);
    if (signal.aborted) return Promise.reject(signal.reason);
    const job = this.#next();
    if (job !== undefined || this.#closed) return Promise.resolve(job);
    return this.#takers.park(signal, undefined);
  }

  /** From now on the same job can be queued again. */
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

  /** Accepts no further jobs; queued ones can still be taken. */
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

  /** Makes room by dropping the newest job of the lowest class below `rank`. */
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

  /** The job is queued already; the volume that failed to deliver the record may be new. */
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
