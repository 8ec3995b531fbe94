/**
 * Quantiles of latencies in the recent past, such as the p95 of the last minute.
 *
 * Contract: `record` is O(1) and allocates nothing. `quantile_ms` is within 2.3 % of a latency at that rank among those of
 * the last `window_ms` less one slot, for latencies from 0.125 ms to 131 s; others count as the nearest of these.
 * Bound: 321 counters for each slot, regardless of traffic.
 *
 *     const window = new LatencyWindow({ window_ms: 60_000 });
 *     window.record(sched.now_ms() - begun_ms);
 *     const p95_ms = window.quantile_ms(0.95); // undefined without calls
 */
import { assert } from '../errors.ts';
import { RollingWindow } from './rolling-window.ts';
import { sched, touch } from '../sched.ts';

/** Latencies below 2^LOW ms, and those of 2^HIGH ms and more, share a bucket. */
const LOW = -3;
const HIGH = 17;
const BUCKETS_PER_OCTAVE = 16;
/** Bucket 0 is for latencies below 2^LOW. */
const BUCKETS = (HIGH - LOW) * BUCKETS_PER_OCTAVE + 1;

export interface LatencyWindowInit {
  window_ms: number;
  /** How finely the window is cut. Default 10. */
  slots?: number;
}

export class LatencyWindow {
  readonly #window: RollingWindow;
  /** Scratch space of `quantile_ms`. */
  readonly #totals = new Float64Array(BUCKETS);

  constructor(init: LatencyWindowInit) {
    this.#window = new RollingWindow({ ...init, lanes: BUCKETS });
  }

  record(latency_ms: number, now_ms = sched.now_ms()): void {
    touch(this);
    this.#window.add(bucketOf(latency_ms), 1, now_ms);
  }

  /** The latency that a share `quantile` of the calls does not exceed; undefined with fewer than `calls_min` calls. */
  quantile_ms(quantile: number, calls_min = 1, now_ms = sched.now_ms()): number | undefined {
    touch(this);
    this.#window.totalsInto(this.#totals, now_ms);
    return this.#quantile_ms(quantile, calls_min);
  }

  /** As `quantile_ms`, of all calls in the last `window_ms` and of none older than that plus one slot. */
  coveringQuantile_ms(quantile: number, now_ms = sched.now_ms()): number | undefined {
    touch(this);
    this.#window.coveringInto(this.#totals, now_ms);
    return this.#quantile_ms(quantile, 1);
  }

  clear(): void {
    touch(this);
    this.#window.clear();
  }

  #quantile_ms(quantile: number, calls_min: number): number | undefined {
    assert(quantile >= 0 && quantile <= 1, 'a quantile lies between 0 and 1');
    const totals = this.#totals;
    const calls = totals.reduce((sum, count) => sum + count, 0);
    if (calls < Math.max(1, calls_min)) return undefined;
    let left = Math.max(1, Math.ceil(calls * quantile));
    let bucket = 0;
    for (left -= totals[0]!; left > 0; left -= totals[bucket]!) bucket += 1;
    return latencyOf(bucket);
  }
}

function bucketOf(latency_ms: number): number {
  // This covers NaN: a failing clock must not break the window.
  if (!(latency_ms >= 2 ** LOW)) return 0;
  const bucket = 1 + Math.floor((Math.log2(latency_ms) - LOW) * BUCKETS_PER_OCTAVE);
  return bucket < BUCKETS ? bucket : BUCKETS - 1;
}

/** The geometric middle of a bucket. */
function latencyOf(bucket: number): number {
  return bucket === 0 ? 2 ** LOW : 2 ** (LOW + (bucket - 0.5) / BUCKETS_PER_OCTAVE);
}
