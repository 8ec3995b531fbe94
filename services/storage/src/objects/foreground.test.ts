import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Latency } from './foreground.ts';

test('few samples give no percentile, many give that of the slow ones', () => {
  const latency = new Latency();
  for (let index = 0; index < 19; index++) latency.add(1);
  assert.equal(latency.takeP95_ms(), undefined);
  for (let index = 0; index < 181; index++) latency.add(index < 20 ? 50 : 1);
  assert.equal(latency.takeP95_ms(), 50);
  assert.equal(latency.takeP95_ms(), undefined, 'each sample counts once');
});

test('the oldest samples are overwritten', () => {
  const latency = new Latency();
  for (let index = 0; index < 5000; index++) latency.add(index < 3900 ? 100 : 2);
  assert.equal(latency.takeP95_ms(), 2);
});
