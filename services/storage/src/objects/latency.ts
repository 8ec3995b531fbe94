/**
 * How long one kind of request took lately: a 95th percentile over the last samples.
 *
 * Bound: `SAMPLES_MAX` numbers; the oldest are overwritten. Cancellation: none; no call waits.
 */

const SAMPLES_MAX = 1024;
/** Fewer say nothing about the slowest of them. */
const SAMPLES_MIN = 20;

export class Latency {
  readonly #samples_ms = new Float64Array(SAMPLES_MAX);
  #count = 0;

  add(took_ms: number): void {
    this.#samples_ms[this.#count++ % SAMPLES_MAX] = took_ms;
  }

  /** The 95th percentile since it was last asked for; undefined when there were too few. */
  takeP95_ms(): number | undefined {
    const samples = this.#samples_ms.slice(0, Math.min(this.#count, SAMPLES_MAX)).toSorted();
    if (samples.length < SAMPLES_MIN) return undefined;
    this.#count = 0;
    return samples[Math.floor(samples.length * 0.95)];
  }
}
