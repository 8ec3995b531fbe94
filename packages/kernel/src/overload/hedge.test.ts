import assert from 'node:assert/strict';
import { getEventListeners } from 'node:events';
import { test } from 'node:test';
import { isRonError } from '../errors.ts';
import { NEVER } from '../sync/never.ts';
import { RetryBudget } from '../retry/retry-budget.ts';
import { idempotent } from '../retry/retry.ts';
import { VirtualSched } from '../virtual-sched.ts';
import { Hedge, type HedgeInit } from './hedge.ts';

interface Attempt {
  readonly signal: AbortSignal;
  readonly answer: PromiseWithResolvers<string>;
}

/** Runs `use` with attempts that answer when the test says so. */
async function withHedge(
  init: Partial<HedgeInit>,
  use: (test: {
    hedge: Hedge;
    attempts: Attempt[];
    call: (signal?: AbortSignal) => Promise<string>;
    clock: VirtualSched;
  }) => Promise<void>,
): Promise<void> {
  const clock = new VirtualSched();
  await clock.during(async () => {
    const hedge = new Hedge({ delay_ms: 150, budget: new RetryBudget(), inflight_max: 100, ...init });
    const attempts: Attempt[] = [];
    const read = idempotent('read', (signal) => {
      const attempt = { signal, answer: Promise.withResolvers<string>() };
      attempts.push(attempt);
      return attempt.answer.promise;
    });
    await use({ hedge, attempts, call: (signal = NEVER) => hedge.run(read, signal), clock });
    assert.equal(clock.timers.length, 0, 'a timer is left');
  });
}

test('a fast answer is not hedged', () =>
  withHedge({}, async ({ hedge, attempts, call, clock }) => {
    const answer = call();
    await clock.advance(149);
    attempts[0]!.answer.resolve('first');
    assert.equal(await answer, 'first');
    await clock.advance(1000);
    assert.equal(attempts.length, 1);
    assert.equal(hedge.hedged_total, 0);
  }));

test('an error of the delay source fails the call, aborts its attempts and leaves no rejection unhandled', async () => {
  const unhandled: unknown[] = [];
  const onUnhandled = (reason: unknown): void => void unhandled.push(reason);
  process.on('unhandledRejection', onUnhandled);
  try {
    for (const goodDelays of [0, 1]) {
      let delays = 0;
      const delay_ms = (): number => {
        if (delays++ === goodDelays) throw new Error('no p95');
        return 10;
      };
      await withHedge({ delay_ms, attempts_max: 3 }, async ({ hedge, attempts, call, clock }) => {
        const failed = assert.rejects(call(), /no p95/);
        await clock.advance(10);
        await failed;
        assert.equal(attempts.length, goodDelays + 1);
        for (const { signal, answer } of attempts) {
          assert.equal(signal.aborted, true);
          answer.reject(new Error('failed late'));
        }
        await clock.settle();
        assert.equal(hedge.inflight, 0);
      });
    }
    await new Promise((resolve) => void setImmediate(resolve));
  } finally {
    process.off('unhandledRejection', onUnhandled);
  }
  assert.deepEqual(unhandled, []);
});

test('a slow attempt is hedged, the second one wins and the first is aborted and tracked', () =>
  withHedge({}, async ({ hedge, attempts, call, clock }) => {
    const answer = call();
    await clock.advance(150);
    attempts[1]!.answer.resolve('second');
    assert.equal(await answer, 'second');
    assert.ok(isRonError(attempts[0]!.signal.reason, 'canceled'));
    assert.equal(hedge.inflight, 1);
    assert.equal(hedge.won_total, 1);
    const closed = hedge.close();
    attempts[0]!.answer.reject(new Error('late and ignored'));
    await closed;
    assert.equal(hedge.inflight, 0);
  }));

test('when all attempts fail, the first error is thrown; a failure before the delay is not hedged', () =>
  withHedge({}, async ({ attempts, call, clock }) => {
    const early = call();
    attempts[0]!.answer.reject(new Error('early'));
    await assert.rejects(early, /early/);
    const both = call();
    const rejected = assert.rejects(both, /b$/);
    await clock.advance(150);
    attempts[2]!.answer.reject(new Error('b'));
    await clock.settle();
    attempts[1]!.answer.reject(new Error('a'));
    await rejected;
    assert.equal(attempts.length, 3);
  }));

test('the budget limits hedges over all calls to its share', () =>
  withHedge({ budget: new RetryBudget({ ratio: 0.1, floor: 2 }) }, async ({ hedge, attempts, call, clock }) => {
    const answers = Array.from({ length: 100 }, () => call());
    await clock.advance(150);
    assert.equal(hedge.hedged_total, 0, 'inflight_max is reached by first attempts');
    for (const { answer } of attempts.splice(0)) answer.resolve('ok');
    await Promise.all(answers);
    const more = Array.from({ length: 50 }, () => call());
    await clock.advance(150);
    assert.equal(hedge.hedged_total, 15, 'a tenth of 150 calls');
    for (const { answer } of attempts) answer.resolve('ok');
    await Promise.all(more);
  }));

test('the delay comes from a source, and without one there is no hedge', async () => {
  let p95_ms: number | undefined = 20;
  await withHedge({ delay_ms: () => p95_ms }, async ({ attempts, call, clock }) => {
    const hedged = call();
    await clock.advance(20);
    assert.equal(attempts.length, 2);
    p95_ms = undefined;
    const plain = call();
    await clock.advance(1000);
    assert.equal(attempts.length, 3);
    for (const { answer } of attempts) answer.resolve('ok');
    await Promise.all([hedged, plain]);
  });
});

test('an abort of the caller rejects at once, aborts the attempts and leaves no listener', () =>
  withHedge({}, async ({ hedge, attempts, call, clock }) => {
    const stop = new AbortController();
    const answer = call(stop.signal);
    const rejected = assert.rejects(answer, /gone/);
    await clock.advance(150);
    stop.abort(new Error('gone'));
    await rejected;
    assert.ok(attempts.every(({ signal }) => signal.reason === stop.signal.reason));
    assert.equal(getEventListeners(stop.signal, 'abort').length, 0);
    for (const { answer: late } of attempts) late.resolve('late');
    await hedge.close();
    await assert.rejects(call(), (error) => isRonError(error, 'closed'));
  }));

test('work that throws at once fails the call', async () => {
  const hedge = new Hedge({ delay_ms: 1, budget: new RetryBudget(), inflight_max: 10 });
  const broken = idempotent('read', () => {
    throw new Error('broken');
  });
  await assert.rejects(hedge.run(broken, NEVER), /broken/);
  assert.equal(hedge.inflight, 0);
});
