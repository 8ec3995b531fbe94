import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { Breaker, verdictOf, type BreakerInit, type Permit } from './breaker.ts';
import { isRonError, RonError } from '../errors.ts';
import { installSched, realSched } from '../sched.ts';
import { VirtualSched } from '../virtual-sched.ts';

const INIT: BreakerInit = {
  error_window_ms: 1000,
  trip_threshold: 0.5,
  calls_min: 4,
  cooldown_ms: 500,
  half_open_probes: 3,
};

function fail(breaker: Breaker, times: number): void {
  for (let i = 0; i < times; i++) breaker.tryAcquire()?.failure();
}

function succeed(breaker: Breaker, times: number): void {
  for (let i = 0; i < times; i++) breaker.tryAcquire()?.success();
}

/** A breaker that was tripped and has cooled down. */
function halfOpen(clock: VirtualSched, init: Partial<BreakerInit> = {}): Breaker {
  const breaker = new Breaker('peer', { ...INIT, ...init });
  fail(breaker, INIT.calls_min);
  assert.equal(breaker.state, 'open');
  clock.advanceSync(INIT.cooldown_ms);
  assert.equal(breaker.state, 'half_open');
  return breaker;
}

const withClock = (use: (clock: VirtualSched) => Promise<void> | void) => (): Promise<void> => {
  const clock = new VirtualSched();
  return clock.during(() => use(clock));
};

test('a failed call and its failure leave the window together, even if time passes while they are counted', (t) => {
  const time = { now_ms: 0, step_ms: 0 };
  const now_ms = (): number => (time.now_ms += time.step_ms) - time.step_ms;
  const previous = installSched({ ...realSched, now_ms });
  t.after(() => installSched(previous));
  const breaker = new Breaker('peer', { ...INIT, calls_min: 3 });
  // A slot of the window ends between two readings of the clock.
  Object.assign(time, { now_ms: 999.9999, step_ms: 0.001 });
  fail(breaker, 1);
  Object.assign(time, { now_ms: 1950, step_ms: 0 });
  succeed(breaker, 2);
  fail(breaker, 1);
  assert.equal(breaker.state, 'closed', 'one of three calls failed');
});

test(
  'it opens when more than the threshold failed, and not before calls_min',
  withClock(() => {
    const breaker = new Breaker('peer', INIT);
    fail(breaker, 3);
    assert.equal(breaker.state, 'closed');
    fail(breaker, 1);
    assert.equal(breaker.state, 'open');

    const half = new Breaker('peer', INIT);
    succeed(half, 10);
    fail(half, 10);
    assert.equal(half.state, 'closed', 'exactly the threshold is not above it');
    fail(half, 1);
    assert.equal(half.state, 'open');
  }),
);

test(
  'failures older than the window are forgotten',
  withClock((clock) => {
    const breaker = new Breaker('peer', INIT);
    fail(breaker, 3);
    clock.advanceSync(INIT.error_window_ms);
    fail(breaker, 3);
    assert.equal(breaker.state, 'closed');
  }),
);

test(
  'open refuses every call, counts the refusals, and says when to come back',
  withClock(async (clock) => {
    const breaker = new Breaker('peer', INIT);
    clock.advanceSync(10_000);
    fail(breaker, 4);
    clock.advanceSync(200);
    assert.equal(breaker.tryAcquire(), undefined);
    assert.equal(breaker.retryAfter_ms, 300);
    let called = 0;
    const refused = breaker.run(async () => called++);
    await assert.rejects(refused, (error) => isRonError(error, 'breaker_open') && error.retry_after_ms === 300);
    assert.deepEqual([called, breaker.rejected_total, breaker.opened_total], [0, 2, 1]);
  }),
);

test(
  'looking at the state never consumes a probe',
  withClock((clock) => {
    const breaker = halfOpen(clock);
    for (let i = 0; i < 100; i++) assert.equal(breaker.state, 'half_open');
    const permits = Array.from({ length: 5 }, () => breaker.tryAcquire());
    assert.deepEqual(
      permits.map((permit) => permit !== undefined),
      [true, true, true, false, false],
    );
  }),
);

test(
  'it closes as soon as the good probes decide, and starts with a clean window',
  withClock((clock) => {
    const breaker = halfOpen(clock);
    breaker.tryAcquire()!.failure();
    breaker.tryAcquire()!.success();
    assert.equal(breaker.state, 'half_open');
    breaker.tryAcquire()!.success();
    assert.equal(breaker.state, 'closed');
    fail(breaker, 3);
    assert.equal(breaker.state, 'closed');
  }),
);

test(
  'it opens again, for a whole cooldown, as soon as the bad probes decide',
  withClock((clock) => {
    const breaker = halfOpen(clock);
    fail(breaker, 2);
    assert.equal(breaker.state, 'open');
    assert.equal(breaker.retryAfter_ms, INIT.cooldown_ms);
    assert.equal(breaker.opened_total, 2);
  }),
);

test(
  'a permit released without a verdict gives its probe back',
  withClock((clock) => {
    const breaker = halfOpen(clock, { half_open_probes: 1 });
    for (let i = 0; i < 10; i++) {
      using permit = breaker.tryAcquire();
      assert.ok(permit, `probe ${i}`);
      assert.equal(breaker.tryAcquire(), undefined);
    }
    breaker.tryAcquire()!.success();
    assert.equal(breaker.state, 'closed');
  }),
);

test(
  'late results from before the trip do not touch the half-open count',
  withClock((clock) => {
    const breaker = new Breaker('peer', INIT);
    const late = Array.from({ length: 6 }, () => breaker.tryAcquire()!);
    fail(breaker, 4);
    clock.advanceSync(INIT.cooldown_ms);
    const probe = breaker.tryAcquire()!;
    late[0]!.failure();
    late[1]!.failure();
    late[2]!.success();
    late[3]!.success();
    late[4]!.release();
    assert.equal(breaker.state, 'half_open');
    assert.deepEqual([breaker.tryAcquire(), breaker.tryAcquire(), breaker.tryAcquire()].map(Boolean), [
      true,
      true,
      false,
    ]);
    probe.success();
    assert.equal(breaker.state, 'half_open', 'one good probe of three decides nothing');
  }),
);

test(
  'a result from the closed phase before last does not count in this one',
  withClock((clock) => {
    const breaker = new Breaker('peer', { ...INIT, calls_min: 1 });
    const late = breaker.tryAcquire()!;
    fail(breaker, 1);
    clock.advanceSync(INIT.cooldown_ms);
    succeed(breaker, 2);
    assert.equal(breaker.state, 'closed');
    late.failure();
    assert.equal(breaker.state, 'closed');
  }),
);

test(
  'probes that stay silent for a cooldown count as failed, and their late verdicts do not count',
  withClock((clock) => {
    const breaker = halfOpen(clock, { half_open_probes: 1 });
    const lost = breaker.tryAcquire()!;
    clock.advanceSync(INIT.cooldown_ms - 1);
    assert.equal(breaker.state, 'half_open');
    clock.advanceSync(1);
    assert.equal(breaker.state, 'open');
    clock.advanceSync(INIT.cooldown_ms);
    lost.success();
    assert.equal(breaker.state, 'half_open');
    assert.ok(breaker.tryAcquire());
  }),
);

test(
  'a half-open breaker without calls stays half-open',
  withClock((clock) => {
    const breaker = halfOpen(clock);
    clock.advanceSync(1e9);
    assert.equal(breaker.state, 'half_open');
  }),
);

test(
  'a permit is settled once',
  withClock(() => {
    const permit = new Breaker('peer', INIT).tryAcquire()!;
    permit.success();
    permit.release();
    permit[Symbol.dispose]();
    assert.throws(() => permit.failure(), RonError);
  }),
);

test(
  'run takes its verdict from the error',
  withClock(async () => {
    const abort = new DOMException('stopped', 'AbortError');
    assert.equal(verdictOf(abort), 'none');
    assert.equal(verdictOf(new RonError('canceled', 'drain')), 'none');
    assert.equal(verdictOf(new RonError('not_found', 'no such object')), 'success');
    assert.equal(verdictOf(new RonError('busy', 'full')), 'failure');
    assert.equal(verdictOf(new RonError('timeout', 'slow')), 'failure');
    assert.equal(verdictOf(new TypeError('fetch failed')), 'failure');

    const breaker = new Breaker('peer', { ...INIT, calls_min: 2 });
    for (let i = 0; i < 5; i++) {
      await assert.rejects(breaker.run(() => Promise.reject(abort)));
      await assert.rejects(breaker.run(() => Promise.reject(new RonError('not_found', 'no such object'))));
    }
    assert.equal(breaker.state, 'closed');
    assert.equal(await breaker.run(async () => 'value'), 'value');
    for (let i = 0; i < 8; i++) {
      await assert.rejects(
        breaker.run(() => {
          throw new Error('at once');
        }),
        /at once|breaker/,
      );
    }
    assert.equal(breaker.state, 'open');
  }),
);

test(
  'onChange is called once for each change',
  withClock((clock) => {
    const heard: string[] = [];
    const breaker = halfOpen(clock, { onChange: (target, state) => heard.push(`${target} ${state}`) });
    void breaker.state;
    succeed(breaker, 2);
    assert.deepEqual(heard, ['peer open', 'peer half_open', 'peer closed']);
  }),
);

test('limits that make no sense are refused', () => {
  const wrong: Partial<BreakerInit>[] = [
    { trip_threshold: 1 },
    { trip_threshold: -0.1 },
    { calls_min: 0 },
    { cooldown_ms: 0 },
    { half_open_probes: 0 },
    { half_open_probes: 1.5 },
    { error_window_ms: 0 },
  ];
  for (const init of wrong) assert.throws(() => new Breaker('peer', { ...INIT, ...init }), RonError);
});

test('property: probes never exceed their number, all refusals are for a reason, and it can always recover', async () => {
  const command = fc.oneof(
    { weight: 4, arbitrary: fc.constant('acquire' as const) },
    { weight: 2, arbitrary: fc.constant('good' as const) },
    { weight: 4, arbitrary: fc.constant('bad' as const) },
    { weight: 1, arbitrary: fc.constant('release' as const) },
    { weight: 1, arbitrary: fc.constant('look' as const) },
    { weight: 2, arbitrary: fc.constantFrom(50, INIT.cooldown_ms) },
  );
  const commands = fc.array(fc.tuple(command, fc.nat(20)), { minLength: 30, maxLength: 80 });
  await fc.assert(
    fc.asyncProperty(commands, fc.integer({ min: 1, max: 4 }), async (steps, half_open_probes) => {
      const clock = new VirtualSched();
      await clock.during(() => {
        const breaker = new Breaker('peer', { ...INIT, calls_min: 2, half_open_probes });
        const out: Permit[] = [];
        /** Permits handed out in the current half-open phase. */
        let probes: Permit[] = [];
        for (const [step, pick] of steps) {
          const before = breaker.state;
          if (before !== 'half_open') probes = [];
          if (typeof step === 'number') clock.advanceSync(step);
          else if (step === 'acquire') {
            const permit = breaker.tryAcquire();
            if (permit !== undefined) out.push(permit);
            if (permit !== undefined && before === 'half_open') probes.push(permit);
            if (before === 'open') assert.equal(permit, undefined);
            if (before === 'closed') assert.ok(permit);
            if (before === 'half_open' && probes.length < half_open_probes) assert.ok(permit);
          } else if (step !== 'look' && out.length > 0) {
            const [permit] = out.splice(pick % out.length, 1);
            if (step === 'good') permit!.success();
            if (step === 'bad') permit!.failure();
            if (step === 'release') {
              permit!.release();
              probes = probes.filter((probe) => probe !== permit);
            }
          }
          assert.ok(probes.length <= half_open_probes);
        }
        // After any history: permits come back, the target is well, time passes, and it closes.
        for (const permit of out) permit.release();
        for (let round = 0; round < 3 && breaker.state !== 'closed'; round++) {
          clock.advanceSync(INIT.cooldown_ms);
          succeed(breaker, half_open_probes);
        }
        assert.equal(breaker.state, 'closed');
      });
    }),
  );
});
