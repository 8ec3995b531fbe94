/**
 * Counts of the recent past, for the breaker and the retry budget.
 *
 * Contract: `total(lane)` counts everything of the last `window_ms` less one slot, and nothing older than `window_ms`;
 * `covering(lane)` counts everything of the last `window_ms`, and nothing older than that plus one slot. So a limit that
 * compares `covering` spending with `total` income holds for every window, wherever it begins.
 * Bound: `slots + 1` numbers per lane, regardless of traffic.
 *
 *   time ->   | s0 | s1 | s2 | ... | s9 | now.. |      the slot of `now` is being filled; the oldest one is only in
 *             `-- covering ------------------`         `covering`, because part of it may lie before the window
 *                  `-- total ----------------`
 */
import { assert } from '../errors.ts';
import { sched } from '../sched.ts';

export interface RollingWindowInit {
  window_ms: number;
  /** Independent counts kept over the same time. Default 2. */
  lanes?: number;
  /** How finely the window is cut. Default 10. */
  slots?: number;
}

export class RollingWindow {
  readonly #slot_ms: number;
  readonly #slots: number;
  readonly #lanes: number;
  /** Slot-major: the counts of slot `i` lie at `i * lanes`. One more slot than the window has. */
  readonly #counts: Float64Array;
  readonly #sums: Float64Array;
  /** The number of the newest slot since the clock's zero. */
  #newest: number;

  constructor(init: RollingWindowInit) {
    this.#slots = init.slots ?? 10;
    this.#lanes = init.lanes ?? 2;
    assert(init.window_ms > 0 && Number.isFinite(init.window_ms), 'a window has a length');
    assert(Number.isInteger(this.#slots) && this.#slots > 0, 'a window has at least one slot');
    this.#slot_ms = init.window_ms / this.#slots;
    this.#counts = new Float64Array((this.#slots + 1) * this.#lanes);
    this.#sums = new Float64Array(this.#lanes);
    this.#newest = this.#slotAt(sched.now_ms());
  }

  /** Steps that belong together give one `now_ms` to all of them, so that no slot ends in between. */
  add(lane: number, count = 1, now_ms = sched.now_ms()): void {
    this.#roll(now_ms);
    const at = (this.#newest % (this.#slots + 1)) * this.#lanes + lane;
    this.#counts[at] = this.#counts[at]! + count;
    this.#sums[lane] = this.#sums[lane]! + count;
  }

  /** Never more than happened within the window. */
  total(lane: number, now_ms = sched.now_ms()): number {
    this.#roll(now_ms);
    return this.#sums[lane]! - this.#counts[((this.#newest + 1) % (this.#slots + 1)) * this.#lanes + lane]!;
  }

  /** Never less than happened within the window. */
  covering(lane: number, now_ms = sched.now_ms()): number {
    this.#roll(now_ms);
    return this.#sums[lane]!;
  }

  /** `total` of every lane, as of one moment. `into` has a place for each lane. */
  totalsInto(into: Float64Array, now_ms = sched.now_ms()): void {
    this.#roll(now_ms);
    const oldest = ((this.#newest + 1) % (this.#slots + 1)) * this.#lanes;
    for (let lane = 0; lane < this.#lanes; lane++) into[lane] = this.#sums[lane]! - this.#counts[oldest + lane]!;
  }

  /** `covering` of every lane, as of one moment. */
  coveringInto(into: Float64Array, now_ms = sched.now_ms()): void {
    this.#roll(now_ms);
    into.set(this.#sums);
  }

  clear(): void {
    this.#counts.fill(0);
    this.#sums.fill(0);
  }

  #slotAt(now_ms: number): number {
    return Math.floor(now_ms / this.#slot_ms);
  }

  /** Empties the slots that time has passed over. At most once around, even after a long pause. */
  #roll(now_ms: number): void {
    const now = this.#slotAt(now_ms);
    const steps = Math.min(now - this.#newest, this.#slots + 1);
    for (let step = 1; step <= steps; step++) {
      const start = ((this.#newest + step) % (this.#slots + 1)) * this.#lanes;
      for (let lane = 0; lane < this.#lanes; lane++) {
        this.#sums[lane] = this.#sums[lane]! - this.#counts[start + lane]!;
        this.#counts[start + lane] = 0;
      }
    }
    if (now > this.#newest) this.#newest = now;
  }
}
