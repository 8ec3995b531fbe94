/**
 * The byte rate of background work, which yields when foreground work becomes slower.
 *
 * Contract: all callers together take at most `rate * t + burst` bytes in any `t` seconds, even if the rate changes. While a
 * latency of foreground work, as given by `latencies_ms`, exceeds its value without background work by a factor of
 * `SLOWER_BY`, the rate is halved repeatedly, down to a floor; otherwise it grows back. A latency that was never measured
 * without background work is compared with its value at the floor.
 * Bound: that of TokenBucket. Cancellation: by the signal.
 */
import { sched, sleep, TokenBucket } from '@ron/kernel';

export interface PacingInit {
  /** Bytes that may be read and written per second. Default 50 MiB. */
  rate_bytes_per_s?: number;
  /** Default 4 MiB. */
  burst_bytes?: number;
  /**
   * Recent latencies of foreground work, one figure (such as a p95) for each kind, always in the same order. Undefined where
   * there was none. Default: no figures.
   */
  latencies_ms?: () => readonly (number | undefined)[];
  /** Called for each wait. */
  onWaited?: (waited_ms: number) => void;
}

const MIB = 1024 * 1024;
const ADJUST_EVERY_MS = 1000;
const SLOWER_BY = 1.5;
/** Differences below this are noise. */
const SLOWER_MS_MIN = 1;
const FLOOR_SHARE = 1 / 16;
const GROWTH = 1.25;
/** How fast the known latency without background work follows new measurements. */
const CALM_WEIGHT = 0.2;

export class Pacing implements AsyncDisposable {
  readonly bucket: TokenBucket;
  readonly #latencies_ms: PacingInit['latencies_ms'];
  #rate_bytes_per_s: number;
  #share = 1;
  /** By kind of foreground work: its latency without background work. */
  readonly #calm_ms: (number | undefined)[] = [];
  #taken_bytes = 0;
  #seen_bytes = 0;

  constructor(init: PacingInit = {}) {
    this.#rate_bytes_per_s = init.rate_bytes_per_s ?? 50 * MIB;
    this.#latencies_ms = init.latencies_ms;
    this.bucket = new TokenBucket('repair', {
      rate_per_s: this.#rate_bytes_per_s,
      burst: init.burst_bytes ?? 4 * MIB,
      onTaken: (_count, waited_ms) => init.onWaited?.(waited_ms),
    });
  }

  /** The configured rate. */
  get rate_bytes_per_s(): number {
    return this.#rate_bytes_per_s;
  }

  /** The rate in force, reduced while foreground work is slow. */
  get allowed_bytes_per_s(): number {
    return this.bucket.rate_per_s;
  }

  get taken_bytes_total(): number {
    return this.#taken_bytes;
  }

  /** Takes effect at once. 0 stops all background work. */
  setRate(rate_bytes_per_s: number): void {
    this.#rate_bytes_per_s = rate_bytes_per_s;
    this.bucket.setRate(rate_bytes_per_s * this.#share);
  }

  /** Waits until `bytes` more may be read or written; yields to other tasks first. */
  async take(bytes: number, signal: AbortSignal): Promise<void> {
    await sched.pause('repair.pace');
    for (let rest = bytes; rest > 0; rest -= this.bucket.burst) {
      await this.bucket.take(Math.min(rest, this.bucket.burst), signal);
    }
    this.#taken_bytes += bytes;
  }

  /** Samples the foreground latencies until `stopping`. */
  async run(stopping: AbortSignal): Promise<void> {
    while (!stopping.aborted) {
      this.adjust();
      await sleep(ADJUST_EVERY_MS, stopping, 'repair.adjust').catch(() => undefined);
    }
  }

  /** Called about once per second. */
  adjust(): void {
    const wasIdle = this.#seen_bytes === this.#taken_bytes && this.bucket.waiters === 0;
    this.#seen_bytes = this.#taken_bytes;
    const latencies_ms = this.#latencies_ms?.() ?? [];
    const isAlone = wasIdle || this.#share === FLOOR_SHARE;
    let [isSlower, isUnknown] = [false, false];
    for (const [kind, latency_ms] of latencies_ms.entries()) {
      if (latency_ms === undefined) continue;
      const calm_ms = this.#calm_ms[kind];
      if (wasIdle || (calm_ms === undefined && isAlone)) this.#learn(kind, latency_ms);
      else if (calm_ms === undefined) isUnknown = true;
      else if (latency_ms > Math.max(calm_ms * SLOWER_BY, calm_ms + SLOWER_MS_MIN)) isSlower = true;
    }
    if (isUnknown) this.#share = FLOOR_SHARE;
    else this.#share = isSlower ? Math.max(FLOOR_SHARE, this.#share / 2) : Math.min(1, this.#share * GROWTH);
    this.bucket.setRate(this.#rate_bytes_per_s * this.#share);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.bucket[Symbol.asyncDispose]();
  }

  #learn(kind: number, latency_ms: number): void {
    const calm_ms = this.#calm_ms[kind] ?? latency_ms;
    this.#calm_ms[kind] = calm_ms + CALM_WEIGHT * (latency_ms - calm_ms);
  }
}
