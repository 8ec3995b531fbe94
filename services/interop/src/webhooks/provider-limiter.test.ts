import assert from 'node:assert/strict';
import { test } from 'node:test';
import { VirtualSched } from '@ron/kernel/testing';
import { INTEROP_LIMITS } from '@ron/proto';
import { ProviderLimiter } from './provider-limiter.ts';

const LIMITED = { code: 'rate_limited', reason: 'RATE_LIMIT', retry_after_ms: 1000 };
const provider = (name: string, rps: number, inflight: number) => ({ name, limits: { rps, inflight } });

/** How many deliveries one after the other are admitted. */
function admitted(limits: ProviderLimiter, given: ReturnType<typeof provider>): number {
  for (let count = 0; ; count += 1) {
    try {
      limits.enter(given)[Symbol.dispose]();
    } catch {
      return count;
    }
  }
}

test('a provider gets its rate in a burst, then its rate per second; others are not affected', async () => {
  const clock = new VirtualSched();
  await clock.during(() => {
    const limits = new ProviderLimiter();
    assert.equal(admitted(limits, provider('a', 4, 9)), 4);
    assert.throws(() => limits.enter(provider('a', 4, 9)), LIMITED);
    assert.equal(admitted(limits, provider('b', 3, 9)), 3);
    clock.advanceSync(500);
    assert.equal(admitted(limits, provider('a', 4, 9)), 2);
  });
});

test('at most `inflight` deliveries are in process; one that ends makes room; a refused one takes no token', () => {
  const limits = new ProviderLimiter();
  const given = provider('a', 3, 2);
  const first = limits.enter(given);
  using held = new DisposableStack();
  held.use(limits.enter(given));
  for (let at = 0; at < 5; at += 1) assert.throws(() => limits.enter(given), LIMITED);
  first[Symbol.dispose]();
  held.use(limits.enter(given));
  assert.throws(() => limits.enter(given), LIMITED);
});

test('a changed rate applies at once, and deliveries in process keep counting', async () => {
  await new VirtualSched().during(() => {
    const limits = new ProviderLimiter();
    const running = limits.enter(provider('a', 1, 2));
    assert.throws(() => limits.enter(provider('a', 1, 2)), LIMITED, 'the rate');
    using _ = limits.enter(provider('a', 5, 2));
    assert.throws(() => limits.enter(provider('a', 5, 2)), LIMITED, 'two are in process');
    running[Symbol.dispose]();
    assert.equal(admitted(limits, provider('a', 5, 2)), 4);
  });
});

test('of too many entries, the one that was used longest ago goes, and never one with deliveries in process', async () => {
  await new VirtualSched().during(() => {
    const limits = new ProviderLimiter();
    const entries_max = 2 * INTEROP_LIMITS.providers;
    const busy = limits.enter(provider('busy', 2, 1));
    for (let at = 1; at < entries_max; at += 1) limits.enter(provider(`p${at}`, 1, 1))[Symbol.dispose]();
    assert.throws(() => limits.enter(provider('p1', 1, 1)), LIMITED, 'all are remembered, and p1 was used again');
    limits.enter(provider('one more', 1, 1))[Symbol.dispose]();
    assert.throws(() => limits.enter(provider('p1', 1, 1)), LIMITED);
    assert.throws(() => limits.enter(provider('busy', 2, 1)), LIMITED, 'it still has one in process');
    limits.enter(provider('p2', 1, 1))[Symbol.dispose]();
    busy[Symbol.dispose]();
  });
});
