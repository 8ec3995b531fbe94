/**
 * The speed at which a queue is worked off, measured while jobs wait.
 *
 * Contract: cost served per millisecond, over stretches in which jobs always waited and none failed: a queue that is mostly
 * empty says nothing about the speed, and an outage says nothing about the time after it. A faster stretch counts at
 * once, a slower one by WEIGHT, so that one bad moment of the machine refuses no request. Unknown until STRETCHES_MIN.
 * Bound: a few numbers.
 *
 *   rate.served(cost, isWhole, queue.size > 0);        // after each batch
 *   const wait_ms = rate.time_ms(queue.cost);          // undefined while unknown
 */
import { sched } from '../sched.ts';

const STRETCH_MS = 20;
const STRETCHES_MIN = 4;
/** Weight of a slower stretch. */
const WEIGHT = 1 / 8;

export class ServiceRate {
  #cost_per_ms = 0;
  #stretches = 0;
  /** Start of the stretch under way; undefined while there is none. */
  #since_ms: number | undefined;
  #done = 0;

  /** Work of this cost has ended, without a failure or not; `more` says whether more jobs wait. */
  served(cost: number, isWhole: boolean, more: boolean): void {
    const now_ms = sched.now_ms();
    if (!more || !isWhole || this.#since_ms === undefined) return this.#begin(more ? now_ms : undefined);
    this.#done += cost;
    const took_ms = now_ms - this.#since_ms;
    if (took_ms < STRETCH_MS) return;
    const sample = this.#done / took_ms;
    this.#cost_per_ms = Math.max(sample, this.#cost_per_ms + (sample - this.#cost_per_ms) * WEIGHT);
    this.#stretches += 1;
    this.#begin(now_ms);
  }

  /** How long work of this cost takes; undefined while the speed is unknown. */
  time_ms(cost: number): number | undefined {
    return this.#stretches < STRETCHES_MIN ? undefined : cost / this.#cost_per_ms;
  }

  #begin(since_ms: number | undefined): void {
    this.#since_ms = since_ms;
    this.#done = 0;
  }
}
