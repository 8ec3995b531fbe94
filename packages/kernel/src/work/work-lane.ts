/**
 * One lane of a work queue: the jobs that wait in it, fair by key, and whether it is in standing overload.
 *
 * Contract: keys take turns (`fair-queue.ts`); within a key the oldest job is next, in standing overload the newest. The
 * lane is in standing overload when its jobs waited longer than their target (10 % of their budget) for a whole interval
 * (5 targets); it leaves that state when its oldest job is under its target again, or when it runs empty. The oldest job
 * decides and not the one that is taken: in overload that is the newest, which never waited.
 * Bound: the queue counts over all lanes; `reserve` places are this lane's own. At most `keys_max` keys take turns.
 *
 *   oldest -> [job] <-> [job] <-> [job] <- newest       in order: taken from the left; in overload: from the right
 */
import { assert } from '../errors.ts';
import { FairQueue } from '../fair/fair-queue.ts';
import type { QueuedJob } from './work-job.ts';

const TARGET_OF_BUDGET = 0.1;
const INTERVAL_TARGETS = 5;
/** Weight of a new sample in a moving mean. */
const SAMPLE_WEIGHT = 1 / 8;
const KEYS_MAX_DEFAULT = 64;

export interface LaneInit {
  readonly name: string;
  /** A lane of higher priority is served first; lanes of equal priority take turns. Default 0. */
  readonly priority?: number;
  /** Share of the capacity, 0 to 1, that no other lane can take. Default 0. */
  readonly reserve_share?: number;
  /** Jobs are fair by this (tenant, provider, address); `submit` gives its value. Default: order of arrival only. */
  readonly key?: string;
  /** Keys that take turns; more keys than that share turns. Default 64. */
  readonly keys_max?: number;
}

/** A lane is declared by its name alone where the defaults fit. */
export type LaneDeclaration = string | LaneInit;

export const laneInit = (lane: LaneDeclaration): LaneInit => (typeof lane === 'string' ? { name: lane } : lane);

/** Throws unless the lanes are named, each once, and every lane has room in a queue of any capacity. */
export function requireLanes(owner: string, lanes: readonly LaneDeclaration[]): void {
  const all = lanes.map(laneInit);
  assert(all.length > 0, `${owner} has a lane`);
  assert(new Set(all.map(({ name }) => name)).size === all.length, `${owner}: lanes are named, each once`);
  for (const { name, priority = 0, reserve_share = 0, key, keys_max } of all) {
    assert(Number.isSafeInteger(priority), `${owner}: the priority of lane ${name} is a whole number`);
    assert(reserve_share >= 0 && reserve_share <= 1, `${owner}: the reserve of lane ${name} is a share, 0 to 1`);
    assert(keys_max === undefined || key !== undefined, `${owner}: lane ${name} with keys_max names its key`);
  }
  const reserved = all.reduce((sum, { reserve_share = 0 }) => sum + reserve_share, 0);
  assert(reserved <= 1, `${owner}: all reserves together are at most the capacity`);
  const hasRoom = reserved < 1 || all.every(({ reserve_share = 0 }) => reserve_share > 0);
  assert(hasRoom, `${owner}: every lane has room of its own or shares some`);
}

export class Lane extends FairQueue<QueuedJob> {
  readonly name: string;
  readonly priority: number;
  /** Places that no other lane can take. */
  readonly reserve: number;
  readonly isKeyed: boolean;
  /** Jobs of this lane that were answered with `busy`. */
  busy_total = 0;
  /** When a job was last taken from it, by the queue's count of takes. */
  taken_at = 0;
  /** Jobs taken from other lanes since then, while this one had jobs. */
  passed_over = 0;
  /** The budget that the target is taken from; undefined: each job's own. */
  readonly #budget_ms: number | undefined;
  /** The budget of a usual job; a mean, so that one client in a hurry changes little. */
  #usual_ms = 0;
  #overloaded = false;
  /** Since when no job was taken within its target; undefined while they are. */
  #late_since_ms: number | undefined;
  #service_ms = 0;
  #sampled_ms = 0;

  constructor(init: LaneInit, capacity: number, budget_ms: number | undefined) {
    super({ capacity, keys_max: init.key === undefined ? 1 : (init.keys_max ?? KEYS_MAX_DEFAULT) });
    this.name = init.name;
    this.priority = init.priority ?? 0;
    this.reserve = Math.floor((init.reserve_share ?? 0) * capacity);
    this.isKeyed = init.key !== undefined;
    this.#budget_ms = budget_ms;
  }

  get overloaded(): boolean {
    return this.#overloaded;
  }

  override push(key: string, job: QueuedJob): void {
    super.push(key, job);
    this.#usual_ms = this.#budget_ms ?? mean(this.#usual_ms, job.budget_ms);
  }

  override remove(job: QueuedJob): void {
    super.remove(job);
    if (this.size > 0) return;
    this.passed_over = 0;
    this.#leaveOverload();
  }

  /** Brings the state up to date. Called before a job is taken. */
  update(now_ms: number): void {
    const oldest = this.oldest;
    if (oldest === undefined) return this.#leaveOverload();
    const target_ms = this.#target_ms(oldest);
    const late_ms = oldest.queued_ms + target_ms;
    if (now_ms < late_ms) return this.#leaveOverload();
    // Not `now_ms`: after a stall in which no job was taken, the job was late before this check.
    this.#late_since_ms ??= late_ms;
    if (now_ms - this.#late_since_ms >= INTERVAL_TARGETS * target_ms) this.#overloaded = true;
  }

  /** Whether work begun now would probably end too late to be of use. */
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
