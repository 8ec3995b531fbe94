import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import { installSched, realSched } from '../sched.ts';
import { ServiceRate } from './service-rate.ts';

function clock(t: TestContext): { now_ms: number } {
  const time = { now_ms: 1000 };
  const previous = installSched({ ...realSched, now_ms: () => time.now_ms });
  t.after(() => installSched(previous));
  return time;
}

test('it is known after some stretches with always more to do, and not before', (t) => {
  const time = clock(t);
  const rate = new ServiceRate();
  rate.served(1000, true, true);
  for (let stretch = 0; stretch < 4; stretch++) {
    assert.equal(rate.time_ms(1000), undefined);
    time.now_ms += 25;
    rate.served(5000, true, true);
  }
  assert.equal(rate.time_ms(1000), 5);
});

test('moments without work, failures and one slow stretch do not make it slow; staying slow does', (t) => {
  const time = clock(t);
  const rate = new ServiceRate();
  const stretch = (took_ms: number, isWhole = true, more = true): void => {
    time.now_ms += took_ms;
    rate.served(4000, isWhole, more);
  };
  for (let at = 0; at < 6; at++) stretch(20);
  const fast_ms = rate.time_ms(4000)!;
  assert.equal(fast_ms, 20);
  stretch(5000, true, false);
  stretch(20);
  stretch(5000, false);
  assert.equal(rate.time_ms(4000), fast_ms);
  stretch(5000);
  assert.ok(rate.time_ms(4000)! < 1.2 * fast_ms);
  for (let at = 0; at < 40; at++) stretch(5000);
  assert.ok(rate.time_ms(4000)! > 1000);
  stretch(20);
  assert.equal(rate.time_ms(4000), fast_ms);
});
