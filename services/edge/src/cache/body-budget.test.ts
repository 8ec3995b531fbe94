/** Memory for bodies is bounded, and given back even if its user forgets it. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { VirtualSched } from '@ron/kernel/testing';
import { BodyBudget } from './body-budget.ts';

test('claims stay within the bound, and end by release', () => {
  const budget = new BodyBudget(1000);
  const [first, second] = [budget.claim(), budget.claim()];
  first.resize(600);
  assert.throws(() => second.resize(500), { code: 'busy' });
  second.resize(400);
  first.resize(100);
  assert.equal(budget.bytes, 500);
  first.release();
  first.release();
  assert.equal(budget.bytes, 400);
});

test('a finished body that is neither kept nor discarded gives its memory back after its requests have ended', async () => {
  const virtual = new VirtualSched();
  await virtual.during(async () => {
    const budget = new BodyBudget(1000);
    const [forgotten, running, next] = [budget.claim(), budget.claim(), budget.claim()];
    forgotten.resize(600);
    forgotten.finished();
    running.resize(300);
    assert.throws(() => next.resize(200), { code: 'busy' });
    await virtual.advance(11_000);
    next.resize(700);
    assert.equal(budget.bytes, 1000);
    assert.throws(() => next.resize(701), { code: 'busy' }, 'a body that is still arriving keeps its memory');
    assert.throws(() => next.resize(1001), { code: 'payload_too_large' }, 'it would never fit');
  });
});
