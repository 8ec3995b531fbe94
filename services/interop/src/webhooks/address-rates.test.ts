import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { VirtualSched } from '@ron/kernel/testing';
import { AddressRates } from './address-rates.ts';

const ADDRESSES_MAX = 8192;
const takeAll = (rates: AddressRates, ip: string, shared?: string): number => {
  let taken = 0;
  while (rates.tryTake(ip, shared)) taken += 1;
  return taken;
};

test('an address gets its rate in a burst, then its rate per second', async () => {
  const clock = new VirtualSched();
  await clock.during(async () => {
    const rates = new AddressRates(() => 5);
    assert.equal(takeAll(rates, '192.0.2.1'), 5);
    assert.equal(takeAll(rates, '192.0.2.2'), 5, 'other addresses have their own');
    await clock.advance(400);
    assert.equal(takeAll(rates, '192.0.2.1'), 2);
  });
});

test('IPv6 addresses of one /64 share a bucket', () => {
  const rates = new AddressRates(() => 5);
  assert.equal(takeAll(rates, '2001:db8::1'), 5);
  assert.equal(takeAll(rates, '2001:db8::ffff:2'), 0);
  assert.equal(takeAll(rates, '2001:db8:0:1::1'), 5);
});

test('addresses in the networks of a provider share one bucket, apart from those outside', () => {
  const rates = new AddressRates(() => 5);
  assert.equal(takeAll(rates, '192.0.2.1', 'github'), 5);
  assert.equal(takeAll(rates, '192.0.2.2', 'github'), 0);
  assert.equal(takeAll(rates, '192.0.2.1', 'stripe'), 5);
  assert.equal(takeAll(rates, '192.0.2.1'), 5);
});

test('a changed rate applies to the next request', () => {
  let rate = 2;
  const rates = new AddressRates(() => rate);
  assert.equal(takeAll(rates, '192.0.2.1'), 2);
  rate = 7;
  assert.equal(takeAll(rates, '192.0.2.1'), 7);
});

test('of too many addresses, the one that was used longest ago is forgotten', async () => {
  await new VirtualSched().during(() => {
    const rates = new AddressRates(() => 1);
    const ip = (at: number): string => `10.${at >> 16}.${(at >> 8) & 255}.${at & 255}`;
    for (let at = 0; at < ADDRESSES_MAX; at += 1) assert.equal(rates.tryTake(ip(at), undefined), true);
    assert.equal(rates.tryTake(ip(0), undefined), false, 'all are remembered');
    assert.equal(rates.tryTake(ip(ADDRESSES_MAX), undefined), true, 'one more: that of the second address goes');
    assert.equal(rates.tryTake(ip(0), undefined), false, 'the first was used since');
    assert.equal(rates.tryTake(ip(2), undefined), false);
    assert.equal(rates.tryTake(ip(1), undefined), true, 'the second one was forgotten');
  });
});

test('no address exceeds its rate, in any order of requests and pauses', async () => {
  const steps = fc.array(fc.record({ ip: fc.nat(3), pause_ms: fc.nat(300) }), { maxLength: 200 });
  await fc.assert(
    fc.asyncProperty(steps, async (all) => {
      const clock = new VirtualSched();
      await clock.during(() => {
        const rates = new AddressRates(() => 3);
        const taken = [0, 0, 0, 0];
        for (const { ip, pause_ms } of all) {
          clock.advanceSync(pause_ms);
          if (rates.tryTake(`192.0.2.${ip}`, undefined)) taken[ip]! += 1;
        }
        for (const count of taken) assert.ok(count <= 3 + (clock.now_ms() / 1000) * 3 + 1e-6);
      });
    }),
    { numRuns: Number(process.env['RON_FUZZ_RUNS'] ?? 100) },
  );
});

test('a charge is paid before the next request, even beyond the tokens in the bucket', async () => {
  const clock = new VirtualSched();
  await clock.during(async () => {
    const rates = new AddressRates(() => 10);
    assert.equal(takeAll(rates, '192.0.2.1'), 10);
    for (let at = 0; at < 10; at += 1) rates.charge('192.0.2.1', undefined, 4);
    await clock.advance(4000);
    assert.equal(rates.tryTake('192.0.2.1', undefined), false, '40 tokens take 4 s');
    await clock.advance(100);
    assert.equal(takeAll(rates, '192.0.2.1'), 1);
    assert.equal(takeAll(rates, '192.0.2.2'), 10, 'another address owes nothing');
    rates.charge('192.0.2.3', undefined, 3);
    assert.equal(takeAll(rates, '192.0.2.3'), 7);
    rates.charge('192.0.2.4', 'shop', 10);
    assert.equal(rates.tryTake('192.0.2.5', 'shop'), false, 'the networks of a provider share the debt');
  });
});
