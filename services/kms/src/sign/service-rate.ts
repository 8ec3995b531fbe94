/**
 * How fast the backend works through what waits, measured while something does.
 *
 * Promise: microseconds of work (as the algorithms count it) for each millisecond, in stretches in which there was always
 * more to do and all went well: what a queue that is mostly empty gets done says nothing, and an outage nothing about the
 * time after it. A faster stretch counts at once, slower ones only when they go on: nobody is sent away because of one
 * bad moment of the machine. Unknown until there were `STRETCHES_MIN`.
 * Bound: a few numbers. Cancellation: nothing waits.
 */
import { sched } from '@ron/kernel';

const STRETCH_MS = 20;
const STRETCHES_MIN = 4;
/** Weight of a stretch that was slower. */
const WEIGHT = 1 / 8;

export class ServiceRate {
  #us_per_ms = 0;
  #stretches = 0;
  /** Of the stretch under way; undefined while there is none. */
  #since_ms: number | undefined;
  #done_us = 0;

  /** Work was done, all of it or not; `more` says whether more waits. */
  served(cost_us: number, isWhole: boolean, more: boolean): void {
    const now_ms = sched.now_ms();
    if (!more || !isWhole || this.#since_ms === undefined) return this.#begin(more ? now_ms : undefined);
    this.#done_us += cost_us;
    const took_ms = now_ms - this.#since_ms;
    if (took_ms < STRETCH_MS) return;
    const sample = this.#done_us / took_ms;
    this.#us_per_ms = Math.max(sample, this.#us_per_ms + (sample - this.#us_per_ms) * WEIGHT);
    this.#stretches += 1;
    this.#begin(now_ms);
  }

  /** How long so much work takes; undefined when nobody knows. */
  time_ms(cost_us: number): number | undefined {
    return this.#stretches < STRETCHES_MIN ? undefined : cost_us / this.#us_per_ms;
  }

  #begin(since_ms: number | undefined): void {
    this.#since_ms = since_ms;
    this.#done_us = 0;
  }
}
