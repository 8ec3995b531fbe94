import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { UnverifiedBytes, type UnverifiedBody } from './unverified-bytes.ts';

const BUSY = { code: 'busy', reason: 'BUSY', retry_after_ms: 1000 };

test('a piece that arrives after the account was closed is refused and does not count', () => {
  const unverified = new UnverifiedBytes(100);
  const body = unverified.open('192.0.2.1');
  body.received(10);
  body[Symbol.dispose]();
  // The deadline of the request has ended it, and its body is still being read.
  assert.throws(() => body.received(10), { code: 'canceled' });
  assert.deepEqual([unverified.bytes, unverified.holders], [0, 0]);
});

test('bytes count from their arrival until the account is closed, once', () => {
  const unverified = new UnverifiedBytes(100);
  const body = unverified.open('192.0.2.1');
  assert.equal(unverified.bytes, 0, 'a declared length does not count');
  body.received(10);
  body.received(20);
  assert.equal(unverified.bytes, 30);
  assert.equal(unverified.holders, 1);
  body[Symbol.dispose]();
  body[Symbol.dispose]();
  assert.deepEqual([unverified.bytes, unverified.holders], [0, 0], 'nothing of the address is kept');
});

test('the byte that exceeds the bound is refused with 429 and does not count', () => {
  const unverified = new UnverifiedBytes(100, 50);
  using one = unverified.open('192.0.2.1', 'github');
  using two = unverified.open('192.0.2.2', 'slack');
  one.received(50);
  two.received(49);
  assert.throws(() => unverified.open('192.0.2.3').received(2), BUSY);
  assert.equal(unverified.bytes, 99);
  using three = unverified.open('192.0.2.3');
  three.received(1);
  assert.equal(unverified.bytes, 100);
});

test('one address holds at most its share, or one body; a /64 is one address', () => {
  const unverified = new UnverifiedBytes(100, 20);
  using one = unverified.open('2001:db8::1');
  using two = unverified.open('2001:db8::2');
  one.received(10);
  two.received(10);
  assert.throws(() => two.received(1), BUSY);
  assert.throws(() => unverified.open('2001:db8::3').received(1), BUSY);
  using other = unverified.open('2001:db8:0:1::1');
  other.received(20);
  one[Symbol.dispose]();
  two.received(10);
  assert.equal(unverified.bytes, 40);
  const large = new UnverifiedBytes(800, 20);
  using third = large.open('192.0.2.1');
  third.received(100);
  assert.throws(() => third.received(1), BUSY);
});

test('strangers at any number of addresses leave a quarter to the networks of providers', () => {
  const unverified = new UnverifiedBytes(1000, 10);
  const strangers = Array.from({ length: 6 }, (_, at) => unverified.open(`192.0.2.${at}`));
  for (const stranger of strangers) stranger.received(125);
  assert.throws(() => unverified.open('192.0.2.100').received(1), BUSY);
  using listed = unverified.open('192.0.2.100', 'github');
  listed.received(250);
  assert.throws(() => listed.received(1), BUSY);
  strangers[0]![Symbol.dispose]();
  using again = unverified.open('192.0.2.101', 'github');
  again.received(125);
  assert.equal(unverified.bytes, 1000);
});

test('the addresses in the networks of one provider hold at most half', () => {
  const unverified = new UnverifiedBytes(1000, 10);
  using one = unverified.open('192.0.2.1', 'github');
  one.received(500);
  assert.throws(() => unverified.open('192.0.2.2', 'github').received(1), BUSY);
  using other = unverified.open('192.0.2.2', 'slack');
  other.received(500);
});

type Step = { readonly body: number; readonly bytes: number };

test('the sum is never above the bound or negative, and is 0 once all accounts are closed', () => {
  const steps = fc.array(fc.record({ body: fc.nat(5), bytes: fc.integer({ min: -1, max: 70 }) }), { maxLength: 100 });
  const providerOf = (body: number): string => `p${body % 3}`;
  const run = (all: readonly Step[]): void => {
    const unverified = new UnverifiedBytes(100);
    const open = new Map<number, { readonly body: UnverifiedBody; bytes: number }>();
    const held = (isWanted: (body: number) => boolean): number =>
      [...open].filter(([body]) => isWanted(body)).reduce((sum, [, { bytes }]) => sum + bytes, 0);
    for (const { body, bytes } of all) {
      const account = open.get(body) ?? { body: unverified.open('192.0.2.1', providerOf(body)), bytes: 0 };
      open.set(body, account);
      if (bytes < 0) {
        account.body[Symbol.dispose]();
        open.delete(body);
      } else {
        const own = held((other) => providerOf(other) === providerOf(body));
        const fits = held(() => true) + bytes <= 100 && own + bytes <= 50;
        if (bytes === 0 || fits) {
          account.body.received(bytes);
          account.bytes += bytes;
        } else assert.throws(() => account.body.received(bytes), BUSY);
      }
      assert.equal(
        unverified.bytes,
        held(() => true),
      );
      assert.ok(unverified.bytes >= 0 && unverified.bytes <= 100);
    }
    for (const { body } of open.values()) body[Symbol.dispose]();
    assert.equal(unverified.bytes, 0);
    for (const body of [0, 1, 2]) {
      using whole = unverified.open('192.0.2.1', providerOf(body));
      whole.received(50);
    }
  };
  fc.assert(fc.property(steps, run), { numRuns: Number(process.env['RON_FUZZ_RUNS'] ?? 500) });
});
