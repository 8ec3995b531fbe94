import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Breakers } from './breakers.ts';

const init = { error_window_ms: 60_000, trip_threshold: 0, calls_min: 1, cooldown_ms: 60_000, half_open_probes: 1 };

function trip(breakers: Breakers, origin: string): void {
  using call = breakers.enter(origin);
  call.breaker.tryAcquire()!.failure();
}

const stateOf = (breakers: Breakers, origin: string): string => {
  using call = breakers.enter(origin);
  return call.breaker.state;
};

test('the table is bounded; closed breakers are evicted before open ones, the least recently used first', () => {
  const breakers = new Breakers(init, 3);
  trip(breakers, 'open');
  using used = breakers.enter('used');
  breakers.enter('old')[Symbol.dispose]();
  for (let index = 0; index < 100; index++) {
    breakers.enter(`origin ${index}`)[Symbol.dispose]();
    assert.equal(breakers.size, 3);
  }
  assert.equal(stateOf(breakers, 'open'), 'open');
  using again = breakers.enter('used');
  assert.equal(again.breaker, used.breaker, 'an origin with calls in flight keeps its breaker');
});

test('when all unused breakers are open, the least recently used goes', () => {
  const breakers = new Breakers(init, 2);
  trip(breakers, 'a');
  trip(breakers, 'b');
  breakers.enter('c')[Symbol.dispose]();
  assert.equal(stateOf(breakers, 'b'), 'open');
  assert.equal(stateOf(breakers, 'a'), 'closed');
});

test('a table whose origins all have calls in flight is busy for others, and open again once one ends', () => {
  const breakers = new Breakers(init, 2);
  using a = breakers.enter('a');
  const b = breakers.enter('b');
  assert.throws(() => breakers.enter('c'), { code: 'busy' });
  using again = breakers.enter('a');
  assert.equal(again.breaker, a.breaker);
  b[Symbol.dispose]();
  breakers.enter('c')[Symbol.dispose]();
});
