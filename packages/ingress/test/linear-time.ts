import assert from 'node:assert/strict';

/** Fails when sixteen times the input costs far more than sixteen times the time, three times in a row: once may be noise. */
export function assertLinearTime(work: (length: number) => void): void {
  work(20_000);
  let fastest = Infinity;
  for (let attempt = 0; attempt < 3 && fastest >= 6 * 16; attempt += 1) fastest = Math.min(fastest, factor(work));
  assert.ok(fastest < 6 * 16, `sixteen times the input took ${fastest} times as long`);
}

function factor(work: (length: number) => void): number {
  return (
    best_ms(() => work(320_000)) /
    Math.max(
      best_ms(() => work(20_000)),
      0.1,
    )
  );
}

function best_ms(work: () => void): number {
  let best = Infinity;
  for (let run = 0; run < 3; run += 1) {
    const from_ms = performance.now();
    work();
    best = Math.min(best, performance.now() - from_ms);
  }
  return best;
}
