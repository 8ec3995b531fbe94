/**
 * One lane of a work queue: the jobs that wait in it, and whether it is in standing overload.
 *
 * Promise: jobs lie in the order in which they came; either end and any job in between is taken out in one step. The
 * lane is in standing overload when its jobs waited longer than their target (10 % of their budget) for a whole interval
 * (5 targets); it leaves that state when its oldest job is under its target again, or when it runs empty. It looks at
 * the oldest job and not at the one that is taken: in overload that is the newest, which never waited.
 * Bound: none of its own, the queue counts over all lanes. Overflow and cancellation: the queue's.
 *
 *   oldest -> [job] <-> [job] <-> [job] <- newest       in order: taken from the left; in overload: from the right
 */
import { JobList, type QueuedJob } from './work-job.ts';

const TARGET_OF_BUDGET = 0.1;
const INTERVAL_TARGETS = 5;
/** Weight of a new sample in a moving mean. */
const SAMPLE_WEIGHT = 1 / 8;

export class Lane extends JobList {
  readonly name: string;
  /** Jobs of this lane that were answered with `busy`. */
  busy_total = 0;
  /** The budget that the target is taken from; undefined: each job's own. */
  readonly #budget_ms: number | undefined;
  /** The budget of a usual job; a mean, so that one client in a hurry changes little. */
  #usual_ms = 0;
  #overloaded = false;
  /** Since when no job was taken within its target; undefined while they are. */
  #late_since_ms: number | undefined;
  #service_ms = 0;
  #sampled_ms = 0;

  constructor(name: string, budget_ms: number | undefined) {
    super();
    this.name = name;
    this.#budget_ms = budget_ms;
  }

  get overloaded(): boolean {
    return this.#overloaded;
  }

  override push(job: QueuedJob): void {
    super.push(job);
    this.#usual_ms = this.#budget_ms ?? mean(this.#usual_ms, job.budget_ms);
  }

  override remove(job: QueuedJob): void {
    super.remove(job);
    if (this.size === 0) this.#leaveOverload();
  }

  /** Brings the state up to date. Called before a job is taken. */
  look(now_ms: number): void {
    const oldest = this.oldest;
    if (oldest === undefined) return this.#leaveOverload();
    const target_ms = this.#target_ms(oldest);
    const late_ms = oldest.queued_ms + target_ms;
    if (now_ms < late_ms) return this.#leaveOverload();
    // Not `now_ms`: after a stall in which nobody took anything, the job was late for longer than we looked.
    this.#late_since_ms ??= late_ms;
    if (now_ms - this.#late_since_ms >= INTERVAL_TARGETS * target_ms) this.#overloaded = true;
  }

  /** Whether work begun now would end too late to be of use, as far as we can tell. */
  isHopeless(job: QueuedJob, now_ms: number): boolean {
    return job.expires_ms - now_ms < this.service_ms(now_ms);
  }

  /**
   * How long a job usually takes, from those that ended; before the first one, the target stands in for it. It halves
   * for each budget of time without a new sample: one very slow job must not keep the lane from trying again.
   */
  service_ms(now_ms: number): number {
    if (this.#service_ms === 0) return this.#usual_ms * TARGET_OF_BUDGET;
    return this.#service_ms * 2 ** ((this.#sampled_ms - now_ms) / this.#usual_ms);
  }

  sample(service_ms: number, now_ms: number): void {
    this.#service_ms = mean(this.#service_ms === 0 ? 0 : this.service_ms(now_ms), service_ms);
    this.#sampled_ms = now_ms;
  }

  #target_ms(job: QueuedJob): number {
    return (this.#budget_ms ?? job.budget_ms) * TARGET_OF_BUDGET;
  }

  #leaveOverload(): void {
    this.#overloaded = false;
    this.#late_since_ms = undefined;
  }
}

/** The moving mean after one more sample; 0 stands for none yet. */
function mean(known: number, sample: number): number {
  return known === 0 ? sample : known + (sample - known) * SAMPLE_WEIGHT;
}
