import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { CREDIT_BYTES_MAX, QUIET_MS_MAX, SendWatch } from './send-watch.ts';

const limits = { stall_ms: 5000, rate_bytes_per_s_min: 1024 };
const SWEEP_MS = 100;

/** How long a client is kept that acknowledges `acked_bytes` at once and then nothing. */
function cutAfter_ms(watch: SendWatch, acked_bytes: number, queued_bytes: number, given = limits): number {
  const sent_bytes = acked_bytes + queued_bytes;
  for (let now_ms = 0; ; now_ms += SWEEP_MS) {
    const verdict = watch.check(now_ms, sent_bytes, given);
    if (verdict === 'cut') return now_ms;
    if (verdict === 'quiet') watch.measured(sent_bytes, queued_bytes);
  }
}

const near = (found_ms: number, expected_ms: number): void =>
  assert.ok(Math.abs(found_ms - expected_ms) <= 1100, `${found_ms} ms, expected ${expected_ms} ms`);

test('a client that acknowledges nothing is cut after the stall limit', () => {
  near(cutAfter_ms(new SendWatch(), 0, 4_000_000), 5000);
});

test('a client that stops reading is cut once its credit is used up', () => {
  near(cutAfter_ms(new SendWatch(), 128 * 1024, 4_000_000), 5000 + 128_000);
  near(cutAfter_ms(new SendWatch(), 1e9, 4_000_000), 5000 + CREDIT_BYTES_MAX / 1.024);
});

test('without a measurement, accepted bytes count, up to the same bound', () => {
  const watch = new SendWatch();
  let now_ms = 0;
  while (watch.check(now_ms, 4_000_000, limits) !== 'cut') now_ms += SWEEP_MS;
  near(now_ms, 5000 + CREDIT_BYTES_MAX / 1.024);
});

test('bytes of earlier answers earn nothing', () => {
  const watch = new SendWatch();
  watch.rest(1e9);
  let now_ms = 0;
  while (watch.check(now_ms, 1e9, limits) !== 'cut') now_ms += SWEEP_MS;
  near(now_ms, 5000);
});

test('a client below the minimum rate is cut even if it never pauses', () => {
  const watch = new SendWatch();
  let now_ms = 0;
  while (now_ms < 60_000 && watch.check(now_ms, now_ms * 0.5, limits) !== 'cut') now_ms += SWEEP_MS;
  near(now_ms, 10_000);
});

test('time without pending bytes is not charged', () => {
  const watch = new SendWatch();
  watch.check(0, 0, limits);
  watch.pause();
  assert.notEqual(watch.check(600_000, 0, limits), 'cut');
  assert.notEqual(watch.check(604_900, 0, limits), 'cut');
  assert.equal(watch.check(605_000, 0, limits), 'cut');
});

test('without a minimum rate only a long silence is cut', () => {
  const free = { stall_ms: 5000, rate_bytes_per_s_min: 0 };
  near(cutAfter_ms(new SendWatch(), 1000, 4_000_000, free), QUIET_MS_MAX);
});

test('a client above the minimum rate is never cut, for acknowledgements in any steps', () => {
  const step = fc.integer({ min: 1, max: CREDIT_BYTES_MAX });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 40 }), fc.double({ min: 1, max: 400, noNaN: true }), (steps, times) => {
      const watch = new SendWatch();
      const rate = limits.rate_bytes_per_s_min * times;
      const queued_bytes = 4_000_000;
      let acked_bytes = 0;
      let now_ms = 0;
      for (const bytes of steps) {
        // It reads a burst at once, then pauses until its average is `rate` again.
        acked_bytes += bytes;
        const next_ms = now_ms + (bytes / rate) * 1000;
        for (; now_ms < next_ms; now_ms += SWEEP_MS * 10) {
          const sent_bytes = acked_bytes + queued_bytes;
          const verdict = watch.check(now_ms, sent_bytes, limits);
          assert.notEqual(verdict, 'cut');
          if (verdict === 'quiet') watch.measured(sent_bytes, queued_bytes);
        }
        now_ms = next_ms;
      }
    }),
    { numRuns: 200 },
  );
});
