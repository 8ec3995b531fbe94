import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { Breaker } from '../overload/breaker.ts';
import { Deadline } from '../time/deadline.ts';
import { isRonError, RonError } from '../errors.ts';
import { RetryBudget } from './retry-budget.ts';
import { isTransient, POLICIES, type RetryPolicy } from './retry-policy.ts';
import { idempotent, retry, type RetryInit } from './retry.ts';
import { VirtualSched } from '../virtual-sched.ts';

const BUSY = new RonError('busy', 'full');

interface Attempts {
  /** When each try began. */
  readonly at_ms: number[];
  readonly outcome: Promise<unknown>;
}

/** Runs `retry` with tries that fail with `errors` in turn and then succeed; lets the clock run until it is over. */
async function attempts(
  clock: VirtualSched,
  errors: readonly unknown[],
  init: Partial<RetryInit> & { budget_ms?: number },
): Promise<Attempts> {
  const { budget_ms = 60_000, policy = POLICIES.rpc, ...rest } = init;
  const at_ms: number[] = [];
  const work = idempotent('read', async (_signal, attempt) => {
    assert.equal(attempt, at_ms.length);
    at_ms.push(clock.now_ms());
    if (attempt < errors.length) throw errors[attempt];
    return 'value';
  });
  using deadline = Deadline.after('request', budget_ms);
  const outcome = retry(work, { deadline, policy, ...rest });
  outcome.catch(() => {});
  await clock.advance(budget_ms - 1);
  return { at_ms, outcome };
}

const withClock = (use: (clock: VirtualSched) => Promise<void>) => (): Promise<void> => {
  const clock = new VirtualSched();
  return clock.during(() => use(clock));
};

test(
  'a first try that succeeds is the only one and does not count as a retry',
  withClock(async (clock) => {
    const { at_ms, outcome } = await attempts(clock, [], { onRetry: () => assert.fail('counted') });
    assert.equal(await outcome, 'value');
    assert.deepEqual(at_ms, [0]);
  }),
);

test(
  'it waits as the policy says, and counts each retry with its result',
  withClock(async (clock) => {
    const counted: string[] = [];
    const onRetry = (op: string, result: string): void => void counted.push(`${op} ${result}`);
    const { at_ms, outcome } = await attempts(clock, [BUSY, BUSY], { onRetry });
    assert.equal(await outcome, 'value');
    assert.deepEqual(at_ms, [0, 75, 75 + 300]);
    assert.deepEqual(counted, ['read failed', 'read ok']);
  }),
);

test(
  'it gives up after tries_max with the error of the last try',
  withClock(async (clock) => {
    const last = new RonError('busy', 'still full');
    const { at_ms, outcome } = await attempts(clock, [BUSY, BUSY, last, BUSY], {});
    await assert.rejects(outcome, last);
    assert.equal(at_ms.length, 3);
  }),
);

test(
  'an error that is not transient ends it at once',
  withClock(async (clock) => {
    for (const error of [new RonError('not_found', 'gone'), new TypeError('a defect'), 'a string']) {
      const { at_ms, outcome } = await attempts(clock, [error], {});
      await assert.rejects(outcome, (thrown) => thrown === error);
      assert.equal(at_ms.length, 1);
    }
  }),
);

test(
  'it never waits past the deadline: it gives up at once when the wait would not fit',
  withClock(async (clock) => {
    const deadline = Deadline.after('request', 75);
    const work = idempotent('read', () => Promise.reject(BUSY));
    await assert.rejects(retry(work, { deadline, policy: POLICIES.rpc }), BUSY);
    assert.equal(clock.now_ms(), 0, 'it did not wait to find out');
    deadline[Symbol.dispose]();

    const { at_ms, outcome } = await attempts(clock, [BUSY, BUSY], { budget_ms: 76 });
    await assert.rejects(outcome, BUSY);
    assert.deepEqual(at_ms, [0, 75], 'one wait fits, the second does not');
  }),
);

test(
  'the deadline ends a try that hangs, and a cancel ends a wait',
  withClock(async (clock) => {
    const hanging = idempotent('read', () => new Promise<never>(() => {}));
    const timedOut = retry(hanging, { deadline: Deadline.after('request', 10), policy: POLICIES.rpc });
    const failed = assert.rejects(timedOut, (error) => isRonError(error, 'timeout') && error.op === 'request');
    await clock.advance(10);
    await failed;

    const deadline = Deadline.after('request', 1000);
    const waiting = retry(
      idempotent('read', () => Promise.reject(BUSY)),
      { deadline, policy: POLICIES.rpc },
    );
    const stopped = assert.rejects(waiting, /client left/);
    await clock.settle();
    deadline.cancel(new Error('client left'));
    await stopped;
    assert.equal(clock.timers.length, 0);
  }),
);

test(
  'a hint when to come back is waited out on top of the backoff, if it fits',
  withClock(async (clock) => {
    const hint = new RonError('busy', 'full', { retry_after_ms: 1000 });
    const { at_ms } = await attempts(clock, [hint], {});
    assert.deepEqual(at_ms, [0, 1075]);
    const short = await attempts(clock, [hint], { budget_ms: 1075 });
    await assert.rejects(short.outcome, hint);
    assert.equal(short.at_ms.length, 1);
  }),
);

const TRIP = { error_window_ms: 1000, trip_threshold: 0.5, calls_min: 2, cooldown_ms: 500, half_open_probes: 1 };

test(
  'an open breaker stops it, before the first try and between tries',
  withClock(async (clock) => {
    const breaker = new Breaker('peer', TRIP);
    const first = await attempts(clock, [BUSY, BUSY], { breaker, budget_ms: 400 });
    await assert.rejects(first.outcome, BUSY);
    assert.equal(first.at_ms.length, 2, 'the second failure tripped it');
    assert.equal(breaker.state, 'open');

    const refused = await attempts(clock, [], { breaker, budget_ms: 10 });
    await assert.rejects(refused.outcome, (error) => isRonError(error, 'breaker_open'));
    assert.equal(refused.at_ms.length, 0);
    assert.equal(breaker.rejected_total, 1, 'it was asked once');
  }),
);

test(
  'every try reports to the breaker, but a deadline that was over before is not held against the target',
  withClock(async (clock) => {
    const breaker = new Breaker('peer', { ...TRIP, calls_min: 1 });
    const over = Deadline.after('request', 0);
    const work = idempotent('read', async () => 'value');
    for (let i = 0; i < 3; i++) {
      await assert.rejects(retry(work, { deadline: over, policy: POLICIES.rpc, breaker }), (error) =>
        isRonError(error, 'timeout'),
      );
    }
    assert.equal(breaker.state, 'closed');
    const { outcome } = await attempts(clock, [BUSY], { breaker, budget_ms: 10 });
    await assert.rejects(outcome, BUSY);
    assert.equal(breaker.state, 'open');
  }),
);

test(
  'an empty budget stops it, and giving up for another reason spends nothing of it',
  withClock(async (clock) => {
    const budget = new RetryBudget({ floor: 1, ratio: 0 });
    const fatal = new RonError('not_found', 'gone');
    await attempts(clock, [fatal], { budget, budget_ms: 10 });
    await attempts(clock, [BUSY], { budget, budget_ms: 10 });
    const { at_ms, outcome } = await attempts(clock, [BUSY, BUSY, BUSY], { budget, budget_ms: 1000 });
    await assert.rejects(outcome, BUSY);
    assert.equal(at_ms.length, 2, 'the one retry of the floor was still there');
    assert.equal(budget.refused_total, 1);
  }),
);

test('property: tries, waits, deadline and budget hold for every sequence of failures', async () => {
  const policies = fc.constantFrom<(keyof typeof POLICIES)[]>('rpc', 'kms', 'index', 'liveFill');
  const failure = fc.constantFrom(
    new RonError('timeout', 'slow'),
    new RonError('not_ready', 'starting'),
    BUSY,
    new Error('defect'),
  );
  const all = fc.record({
    name: policies,
    failures: fc.array(failure, { maxLength: 5 }),
    chances: fc.array(fc.double({ min: 0, max: 0.999, noNaN: true }), { minLength: 1, maxLength: 5 }),
    budget_ms: fc.integer({ min: 2, max: 1500 }),
    spent: fc.nat(12),
  });
  await fc.assert(
    fc.asyncProperty(all, async ({ name, failures, chances, budget_ms, spent }) => {
      const clock = new VirtualSched();
      clock.chances = chances;
      await clock.during(async () => {
        const policy: RetryPolicy = POLICIES[name];
        const budget = new RetryBudget();
        for (let i = 0; i < spent; i++) budget.trySpend('read');
        let retries = 0;
        const { at_ms } = await attempts(clock, failures, { policy, budget, budget_ms, onRetry: () => retries++ });
        assert.ok(at_ms.length >= 1 && at_ms.length <= policy.tries_max);
        assert.equal(retries, at_ms.length - 1);
        assert.ok(retries <= Math.max(0, 10 - spent), 'the floor of the budget');
        assert.ok(at_ms.at(-1)! < budget_ms, 'no try begins after the deadline');
        assert.equal(clock.timers.length, 0);
        // A try follows another one only after an error that the policy calls transient.
        const mayPass = policy.isTransient ?? isTransient;
        for (let i = 1; i < at_ms.length; i++) assert.ok(mayPass(failures[i - 1]));
      });
    }),
  );
});
