/**
 * The lanes of a work queue: which of them has room, and which is served next.
 *
 * Contract: strict priority with a minimum share. The lane of the highest priority that has jobs is next; lanes of equal
 * priority take turns. A lane that was passed over PASSED_OVER_MAX times while it had jobs is next regardless of
 * its priority, and several such lanes take turns.
 * Bound: `capacity` jobs over all lanes. Each lane may use its reserve, which no other lane can take, and the shared rest.
 *
 *   capacity  [get: reserve][put: reserve][shared by all lanes .........]
 */
import { assert } from '../errors.ts';
import type { QueuedJob } from './work-job.ts';
import { Lane, laneInit, requireLanes, type LaneDeclaration } from './work-lane.ts';

/** A lane with jobs is served after this many jobs of other lanes: its minimum share is 1/16. */
const PASSED_OVER_MAX = 15;

export class Lanes {
  readonly all: readonly Lane[];
  readonly #owner: string;
  readonly #byName: ReadonlyMap<string, Lane>;
  /** Places that no lane has reserved and no job takes. */
  #shared_free: number;
  #takes = 0;
  /** Jobs that wait, over all lanes. */
  depth = 0;

  constructor(owner: string, capacity: number, lanes: readonly LaneDeclaration[], budget_ms: number | undefined) {
    requireLanes(owner, lanes);
    this.#owner = owner;
    this.all = lanes.map((lane) => new Lane(laneInit(lane), capacity, budget_ms));
    this.#byName = new Map(this.all.map((lane) => [lane.name, lane]));
    this.#shared_free = this.all.reduce((free, { reserve }) => free - reserve, capacity);
  }

  named(name: string): Lane {
    const lane = this.#byName.get(name);
    assert(lane !== undefined, `${this.#owner} has a lane ${name}`);
    return lane;
  }

  hasRoom(lane: Lane): boolean {
    return lane.size < lane.reserve || this.#shared_free > 0;
  }

  /** The lane to serve next. Only while jobs wait. */
  get next(): Lane {
    let best: Lane | undefined;
    for (const lane of this.all) {
      if (lane.size > 0 && (best === undefined || goesBefore(lane, best))) best = lane;
    }
    assert(best !== undefined, `${this.#owner}: jobs that wait are in a lane`);
    return best;
  }

  /** The caller has checked for room. */
  enter(job: QueuedJob, key: string): void {
    const lane = job.in;
    if (lane.size >= lane.reserve) this.#shared_free -= 1;
    lane.push(key, job);
    this.depth += 1;
  }

  /** Takes out a job that is served. It counts as the turn of its lane and of its key. */
  take(job: QueuedJob): void {
    const lane = job.in;
    this.#free(lane);
    lane.take(job);
    this.#takes += 1;
    lane.taken_at = this.#takes;
    lane.passed_over = 0;
    for (const other of this.all) if (other !== lane && other.size > 0) other.passed_over += 1;
  }

  /** Takes out a job that is not served. */
  remove(job: QueuedJob): void {
    this.#free(job.in);
    job.in.remove(job);
  }

  #free(lane: Lane): void {
    if (lane.size > lane.reserve) this.#shared_free += 1;
    this.depth -= 1;
  }
}

/** Whether `lane` is served before `other`. */
function goesBefore(lane: Lane, other: Lane): boolean {
  const starves = lane.passed_over >= PASSED_OVER_MAX;
  if (starves !== other.passed_over >= PASSED_OVER_MAX) return starves;
  if (!starves && lane.priority !== other.priority) return lane.priority > other.priority;
  return lane.taken_at < other.taken_at;
}
