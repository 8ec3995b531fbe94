import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Pacing } from './pacing.ts';

const { signal } = new AbortController();

test('the rate falls while foreground work is slower, down to a floor, and recovers', async () => {
  let latency_ms: number | undefined = 10;
  const pacing = new Pacing({ rate_bytes_per_s: 1600, burst_bytes: 1000, latencies_ms: () => [latency_ms] });
  const work = (): Promise<void> => pacing.take(1, signal);
  pacing.adjust();
  await work();
  pacing.adjust();
  assert.equal(pacing.allowed_bytes_per_s, 1600, 'as fast as before');
  latency_ms = 14;
  await work();
  pacing.adjust();
  assert.equal(pacing.allowed_bytes_per_s, 1600, 'a small slowdown does not count');
  latency_ms = 16;
  for (const expected of [800, 400, 200, 100, 100]) {
    await work();
    pacing.adjust();
    assert.equal(pacing.allowed_bytes_per_s, expected);
  }
  pacing.setRate(3200);
  assert.equal(pacing.allowed_bytes_per_s, 200, 'a new rate is given way from as well');
  latency_ms = 11;
  for (let round = 0; round < 20; round++) {
    await work();
    pacing.adjust();
  }
  assert.equal(pacing.allowed_bytes_per_s, 3200);
  latency_ms = undefined;
  await work();
  pacing.adjust();
  assert.equal(pacing.allowed_bytes_per_s, 3200, 'there is no foreground work');
});

test('slow foreground work without background work does not lower the rate', async () => {
  let latency_ms = 10;
  const pacing = new Pacing({ rate_bytes_per_s: 1000, burst_bytes: 1000, latencies_ms: () => [latency_ms] });
  pacing.adjust();
  latency_ms = 100;
  for (let round = 0; round < 50; round++) pacing.adjust();
  await pacing.take(1, signal);
  pacing.adjust();
  assert.equal(pacing.allowed_bytes_per_s, 1000);
});

test('more than a burst is taken in parts, and waits are reported', async () => {
  const waited: number[] = [];
  const pacing = new Pacing({ rate_bytes_per_s: 1000, burst_bytes: 100, onWaited: (wait_ms) => waited.push(wait_ms) });
  await pacing.take(250, signal);
  assert.equal(waited.length, 3);
  // The second 100 bytes take 100 ms: longer than anything may come between the first and the second.
  assert.ok(waited[1]! + waited[2]! > 0);
  assert.equal(pacing.taken_bytes_total, 250);
});

test('one kind of foreground work that becomes slower is enough', async () => {
  const latencies_ms = [10, 20];
  const pacing = new Pacing({ rate_bytes_per_s: 1600, burst_bytes: 1000, latencies_ms: () => latencies_ms });
  pacing.adjust();
  latencies_ms[1] = 40;
  await pacing.take(1, signal);
  pacing.adjust();
  assert.equal(pacing.allowed_bytes_per_s, 800);
});

test('foreground work that was never measured alone is measured at the floor, and yielded to from then on', async () => {
  let latency_ms = 80;
  const pacing = new Pacing({ rate_bytes_per_s: 1600, burst_bytes: 1000, latencies_ms: () => [latency_ms] });
  await pacing.take(1, signal);
  pacing.adjust();
  assert.equal(pacing.allowed_bytes_per_s, 100);
  latency_ms = 10;
  await pacing.take(1, signal);
  pacing.adjust();
  const grown = pacing.allowed_bytes_per_s;
  assert.ok(grown > 100, 'its latency without much background work is known now');
  latency_ms = 80;
  await pacing.take(1, signal);
  pacing.adjust();
  assert.ok(pacing.allowed_bytes_per_s < grown);
});
