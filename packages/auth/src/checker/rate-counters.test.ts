import assert from 'node:assert/strict';
import { test } from 'node:test';
import * as fc from 'fast-check';
import { Bench, TestClock } from '../../test/support.ts';
import { attenuate } from '../capability/capability.ts';
import { RateCounters } from './rate-counters.ts';

/** A link of its own capability, unless one is named. */
const link = (id: string, count: number, period_ms: 1000 | 60_000 = 1000, capability_id = id) =>
  ({ id, capability_id, caveat: { key: 'rate', count, period_ms } }) as const;

test('never more than the burst plus the rate in any window', () => {
  fc.assert(
    fc.property(
      fc.integer({ min: 1, max: 50 }),
      fc.constantFrom(1000 as const, 60_000 as const),
      fc.array(fc.double({ min: 0, max: 400, noNaN: true }), { minLength: 1, maxLength: 200 }),
      (count, period_ms, gaps) => {
        const rates = new RateCounters(4);
        const passed: number[] = [];
        let now_ms = 0;
        for (const gap_ms of gaps) {
          now_ms += gap_ms;
          const wait_ms = rates.take([link('a', count, period_ms)], now_ms);
          assert.ok(wait_ms >= 0 && wait_ms <= period_ms / count + 1e-6);
          if (wait_ms === 0) passed.push(now_ms);
        }
        for (const [first, from_ms] of passed.entries()) {
          for (let last = first; last < passed.length; last++) {
            const span_ms = passed[last]! - from_ms;
            assert.ok(last - first + 1 <= count + (span_ms * count) / period_ms + 1e-6);
          }
        }
      },
    ),
  );
});

test('a client that retries constantly gets the burst and then the rate', () => {
  const rates = new RateCounters(4);
  let passed = 0;
  for (let now_ms = 0; now_ms < 10_000; now_ms++) passed += rates.take([link('a', 20)], now_ms) === 0 ? 1 : 0;
  assert.equal(passed, 20 + 199);
});

test('waiting for the returned time is enough, and a moment less is not', () => {
  const rates = new RateCounters(4);
  for (let at = 0; at < 5; at++) assert.equal(rates.take([link('a', 5)], 100), 0);
  const wait_ms = rates.take([link('a', 5)], 100);
  assert.equal(wait_ms, 200);
  assert.ok(rates.take([link('a', 5)], 100 + wait_ms - 1) > 0);
  assert.equal(rates.take([link('a', 5)], 100 + wait_ms), 0);
});

test('a request that one limit refuses is not counted by the others', () => {
  const rates = new RateCounters(4);
  assert.equal(rates.take([link('wide', 2), link('narrow', 1)], 0), 0);
  for (let at = 0; at < 10; at++) assert.ok(rates.take([link('wide', 2), link('narrow', 1)], 0) > 0);
  assert.equal(rates.take([link('wide', 2)], 0), 0);
});

test('while all counters are live a new one is refused, and none is dropped', () => {
  const rates = new RateCounters(100);
  for (let at = 0; at < 100; at++) assert.equal(rates.take([link(`${at}`, 1)], 0), 0);
  assert.equal(rates.take([link('new', 1)], 0), 1000);
  assert.equal(rates.size, 100);
  for (let at = 0; at < 100; at++) assert.ok(rates.take([link(`${at}`, 1)], 10) > 0, `${at} was forgotten`);
  assert.equal(rates.take([link('new', 1)], 1000), 0, 'the others have recovered');
  assert.equal(rates.size, 100);
});

test('recovered counters are evicted even if the oldest ones are slow', () => {
  const rates = new RateCounters(100);
  for (let at = 0; at < 60; at++) rates.take([link(`slow ${at}`, 1, 60_000)], 0);
  for (let at = 0; at < 40; at++) rates.take([link(`fast ${at}`, 1)], 0);
  let passed = 0;
  for (let at = 0; at < 30; at++) if (rates.take([link(`new ${at}`, 1, 60_000)], 1000) === 0) passed += 1;
  assert.ok(passed >= 20, `${passed} of 30 found room`);
  assert.equal(rates.size, 100);
});

test('one capability cannot exhaust the counters of the others, and can reuse its own once they have recovered', () => {
  const rates = new RateCounters(80);
  let passed = 0;
  for (let at = 0; at < 200; at++) if (rates.take([link(`own ${at}`, 1, 60_000, 'mallory')], 0) === 0) passed += 1;
  assert.equal(passed, 10);
  for (let at = 0; at < 70; at++) assert.equal(rates.take([link(`other ${at}`, 1)], 0), 0);
  assert.equal(rates.size, 80);
  assert.equal(rates.take([link('own again', 1, 60_000, 'mallory')], 60_000), 0);
  assert.equal(rates.size, 80);
});

test('a holder that writes its own rate caveats locks no other client out', async () => {
  using clock = new TestClock();
  const bench = new Bench({ rates_max: 160 });
  const mallory = await bench.token({ subject: 'mallory' });
  const own = Array.from({ length: 20 }, () => 'rate <= 1/m');
  for (let at = 0; at < 20; at++) await bench.check(attenuate(mallory, [`expires < ${9e14 + at}`, ...own]));
  assert.equal(bench.checker.sizes.rates, 20);
  await bench.allowed(await bench.token({ subject: 'alice', caveats: ['rate <= 100/s'] }));
  clock.now_ms += 60_000;
  await bench.allowed(attenuate(mallory, ['rate <= 1/m']));
});

test('repeated attenuation of a token does not lift its limit', async () => {
  using clock = new TestClock();
  const bench = new Bench();
  const limited = await bench.token({ caveats: ['rate <= 3/s'] });
  for (let at = 0; at < 3; at++) await bench.allowed(attenuate(limited, [`rate <= ${100 + at}/s`]));
  const refusal = await bench.refused(attenuate(limited, ['tenant = other', 'rate <= 500/s']), {
    facts: { tenant: 'other' },
  });
  assert.equal(refusal.code, 'rate_limited');
  assert.equal(refusal.reason, 'capability exceeds its rate');
  assert.ok(Math.abs((refusal.retry_after_ms ?? 0) - 1000 / 3) < 1);
  await bench.refused(limited);
  clock.wall_ms -= 3_600_000;
  await bench.refused(limited);
  clock.now_ms += 334;
  await bench.allowed(limited);
});

test('two holders with limits of their own do not share them', async () => {
  using clock = new TestClock();
  const bench = new Bench();
  const root = await bench.token();
  const alice = attenuate(root, ['name ^= alice/', 'rate <= 1/m']);
  const bob = attenuate(root, ['name ^= bob/', 'rate <= 1/m']);
  await bench.allowed(alice, { facts: { name: 'alice/x' } });
  await bench.allowed(bob, { facts: { name: 'bob/x' } });
  await bench.refused(alice, { facts: { name: 'alice/x' } });
  clock.now_ms += 60_000;
  await bench.allowed(alice, { facts: { name: 'alice/x' } });
});

test('a request that another caveat refuses is not counted', async () => {
  using clock = new TestClock();
  const bench = new Bench();
  const token = await bench.token({ caveats: ['rate <= 1/m', 'ip in 127.0.0.1'] });
  for (let at = 0; at < 5; at++) assert.equal((await bench.refused(token, { source_ip: '::2' })).code, 'forbidden');
  await bench.allowed(token);
  clock.now_ms += 59_999;
  assert.equal((await bench.refused(token)).code, 'rate_limited');
});
