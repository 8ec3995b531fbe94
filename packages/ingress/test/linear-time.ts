import assert from 'node:assert/strict';

/** Fails when sixteen times the input costs far more than sixteen times the time. The best of a few runs, to shrug off noise. */
export function assertLinearTime(work: (length: number) => void): void {
  const best_ms = (length: number): number => {
    let best = Infinity;
    for (let run = 0; run < 4; run += 1) {
      const from_ms = performance.now();
      work(length);
      best = Math.min(best, performance.now() - from_ms);
    }
    return best;
  };
  best_ms(20_000);
  const short_ms = Math.max(best_ms(20_000), 0.1);
  const long_ms = best_ms(320_000);
  assert.ok(long_ms < 6 * 16 * short_ms, `20 000 took ${short_ms} ms, 320 000 took ${long_ms} ms`);
}
