/**
 * The 95th percentile of recent latencies of one kind of request.
 *
 * Bound: `SAMPLES_MAX` samples. Overflow: the oldest are overwritten.
 */

const SAMPLES_MAX = 1024;
/** With fewer samples the percentile is meaningless. */
const SAMPLES_MIN = 20;

export class Latency {
  readonly #samples_ms = new Float64Array(SAMPLES_MAX);
  #count = 0;

  add(took_ms: number): void {
    this.#samples_ms[this.#count++ % SAMPLES_MAX] = took_ms;
  }

  /** The 95th percentile since the last call; undefined with too few samples. */
  takeP95_ms(): number | undefined {
    const samples = this.#samples_ms.slice(0, Math.min(this.#count, SAMPLES_MAX)).toSorted();
    if (samples.length < SAMPLES_MIN) return undefined;
    this.#count = 0;
    return samples[Math.floor(samples.length * 0.95)];
  }
}
