import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { VirtualSched } from '../virtual-sched.ts';
import { LatencyWindow } from './latency-window.ts';

test('property: a quantile is within 2.3 % of the exact one', () => {
  const latency_ms = fc.oneof(fc.double({ min: 0.125, max: 131_000, noNaN: true }), fc.integer({ min: 1, max: 1000 }));
  fc.assert(
    fc.property(
      fc.array(latency_ms, { minLength: 1, maxLength: 200 }),
      fc.constantFrom(0, 0.5, 0.95, 1),
      (all, share) => {
        const window = new LatencyWindow({ window_ms: 60_000 });
        for (const each of all) window.record(each);
        const sorted = all.toSorted((left, right) => left - right);
        const exact = sorted[Math.max(0, Math.ceil(all.length * share) - 1)]!;
        const found = window.quantile_ms(share)!;
        assert.ok(Math.abs(found / exact - 1) < 0.023, `${found} for ${exact}`);
      },
    ),
  );
});

test('calls older than the window do not count, and too few calls give no quantile', async () => {
  const clock = new VirtualSched();
  await clock.during(() => {
    const window = new LatencyWindow({ window_ms: 1000 });
    assert.equal(window.quantile_ms(0.95), undefined);
    for (let call = 0; call < 19; call++) window.record(700);
    assert.equal(window.quantile_ms(0.95, 20), undefined);
    window.record(700);
    assert.ok(Math.abs(window.quantile_ms(0.95, 20)! - 700) < 20);
    clock.advanceSync(600);
    for (let call = 0; call < 20; call++) window.record(10);
    clock.advanceSync(500);
    assert.ok(window.quantile_ms(0.95)! < 11, 'only the later calls are left');
    window.clear();
    assert.equal(window.quantile_ms(0.95), undefined);
  });
});

test('impossible latencies are counted at the edges', () => {
  const window = new LatencyWindow({ window_ms: 1000 });
  for (const latency_ms of [NaN, -1, 0]) window.record(latency_ms);
  assert.equal(window.quantile_ms(1), 0.125);
  for (const latency_ms of [Infinity, 1e12]) window.record(latency_ms);
  assert.ok(window.quantile_ms(1)! > 125_000);
});
