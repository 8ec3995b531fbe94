import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { RonError } from '../errors.ts';
import { RetryBudget } from './retry-budget.ts';
import { VirtualSched } from '../virtual-sched.ts';

const spend = (budget: RetryBudget, op: string, times: number): number =>
  Array.from({ length: times }, () => budget.trySpend(op)).filter(Boolean).length;

test('ten retries in ten seconds are always allowed, to each operation on its own', async () => {
  const clock = new VirtualSched();
  await clock.during(() => {
    const budget = new RetryBudget();
    assert.equal(spend(budget, 'read', 20), 10);
    assert.equal(spend(budget, 'write', 20), 10);
    assert.equal(budget.refused_total, 20);
    clock.advanceSync(9_999);
    assert.equal(spend(budget, 'read', 1), 0);
    clock.advanceSync(502);
    assert.equal(spend(budget, 'read', 20), 10);
  });
});

test('busy operations may retry a tenth of their calls', async () => {
  const clock = new VirtualSched();
  await clock.during(() => {
    const budget = new RetryBudget();
    for (let i = 0; i < 1000; i++) budget.onCall('read');
    assert.equal(spend(budget, 'read', 200), 100);
    clock.advanceSync(10_500);
    assert.equal(spend(budget, 'read', 200), 10, 'old calls earn nothing any more');
  });
});

test('operations beyond ops_max share one budget', () => {
  const budget = new RetryBudget({ ops_max: 2 });
  assert.deepEqual([spend(budget, 'a', 10), spend(budget, 'b', 10)], [10, 10]);
  let others = 0;
  for (let i = 0; i < 1000; i++) others += spend(budget, `op${i}`, 1);
  assert.equal(others, 10);
});

test('a negative budget is refused', () => {
  assert.throws(() => new RetryBudget({ floor: -1 }), RonError);
  assert.throws(() => new RetryBudget({ ratio: -0.1 }), RonError);
});

test('property: a window that ends with a retry never holds more than a tenth of its calls, or the floor', async () => {
  const step = fc.record({ wait_ms: fc.nat(900), calls: fc.nat(60), retries: fc.nat(12) });
  const init = fc.record({ floor: fc.nat(12), ratio: fc.constantFrom(0, 0.1, 0.25) });
  await fc.assert(
    fc.asyncProperty(init, fc.array(step, { minLength: 20, maxLength: 60 }), async ({ floor, ratio }, steps) => {
      const clock = new VirtualSched();
      await clock.during(() => {
        const budget = new RetryBudget({ floor, ratio });
        const log: { at_ms: number; calls: number; retries: number }[] = [];
        for (const { wait_ms, calls, retries } of steps) {
          clock.advanceSync(wait_ms);
          for (let i = 0; i < calls; i++) budget.onCall('read');
          const spent = spend(budget, 'read', retries);
          log.push({ at_ms: clock.now_ms(), calls, retries: spent });
          if (spent === 0) continue;
          const recent = log.filter((one) => clock.now_ms() - one.at_ms < 10_000);
          const made = recent.reduce((sum, one) => sum + one.calls, 0);
          const again = recent.reduce((sum, one) => sum + one.retries, 0);
          assert.ok(again <= Math.max(floor, ratio * made), `${again} retries for ${made} calls`);
        }
      });
    }),
  );
});
