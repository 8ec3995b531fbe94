import assert from 'node:assert/strict';
import { getEventListeners } from 'node:events';
import { test } from 'node:test';
import fc from 'fast-check';
import { isRonError, RonError } from '../errors.ts';
import { TokenBucket } from './token-bucket.ts';
import { VirtualSched } from '../virtual-sched.ts';

const forever = new AbortController().signal;

const withClock = (use: (clock: VirtualSched) => Promise<void> | void) => (): Promise<void> => {
  const clock = new VirtualSched();
  return clock.during(() => use(clock));
};

/** Notes when each of several takes was served. */
function served(clock: VirtualSched): { log: string[]; add: (name: string, taking: Promise<void>) => void } {
  const log: string[] = [];
  const note = (what: string): void => void log.push(`${what}@${clock.now_ms()}`);
  const add = (name: string, taking: Promise<void>): void =>
    void taking.then(
      () => note(name),
      (reason: string) => note(`${name} ${reason} `),
    );
  return { log, add };
}

test(
  'it starts full, refuses tokens beyond its level, and refills at its rate up to the burst',
  withClock((clock) => {
    const bucket = new TokenBucket('rps', { rate_per_s: 10, burst: 3 });
    assert.deepEqual([bucket.tryTake(2), bucket.tryTake(2), bucket.tryTake()], [true, false, true]);
    assert.equal(bucket.retryAfter_ms(), 100);
    clock.advanceSync(99);
    assert.equal(bucket.tryTake(), false);
    clock.advanceSync(1);
    assert.equal(bucket.tryTake(), true);
    clock.advanceSync(60_000);
    assert.deepEqual([bucket.tryTake(3), bucket.tryTake()], [true, false]);
  }),
);

test(
  'takeUpTo gives the whole tokens that are there',
  withClock((clock) => {
    const bucket = new TokenBucket('rps', { rate_per_s: 10, burst: 5 });
    assert.equal(bucket.takeUpTo(3), 3);
    clock.advanceSync(150);
    assert.equal(bucket.takeUpTo(5), 3);
    assert.equal(bucket.takeUpTo(5), 0);
    clock.advanceSync(50);
    assert.equal(bucket.takeUpTo(5), 1, 'the half token was not lost');
  }),
);

test(
  'take serves in the order of arrival, each at the earliest moment, and nothing overtakes the line',
  withClock(async (clock) => {
    const taken: string[] = [];
    const onTaken = (count: number, waited_ms: number): void => void taken.push(`${count} after ${waited_ms}`);
    const bucket = new TokenBucket('repair', { rate_per_s: 1000, burst: 100, onTaken });
    const { log, add } = served(clock);
    add('a', bucket.take(100, forever));
    add('b', bucket.take(100, forever));
    add('c', bucket.take(1, forever));
    await clock.advance(50);
    assert.equal(bucket.tryTake(1), false, 'tokens are there, but b is first');
    assert.equal(bucket.takeUpTo(1), 0);
    assert.equal(bucket.waiters, 2);
    await clock.advance(100);
    assert.deepEqual(log, ['a@0', 'b@100', 'c@101']);
    assert.deepEqual(taken, ['100 after 0', '100 after 100', '1 after 101']);
    assert.equal(clock.timers.length, 0);
  }),
);

test(
  'a cancelled take has taken nothing and the next in line moves up at once',
  withClock(async (clock) => {
    const bucket = new TokenBucket('repair', { rate_per_s: 1000, burst: 100 });
    const { log, add } = served(clock);
    const cancel = new AbortController();
    bucket.tryTake(100);
    add('big', bucket.take(100, cancel.signal));
    add('small', bucket.take(10, forever));
    add('last', bucket.take(50, cancel.signal));
    await clock.advance(40);
    assert.deepEqual(log, []);
    cancel.abort('stop');
    await clock.advance(0);
    assert.deepEqual(log, ['big stop @40', 'small@40', 'last stop @40']);
    assert.equal(bucket.takeUpTo(100), 30);
    assert.equal(clock.timers.length, 0);
    assert.equal(getEventListeners(cancel.signal, 'abort').length, 0);
    await assert.rejects(bucket.take(1, cancel.signal), /stop/);
  }),
);

test(
  'a timer exists only while a caller waits, and no listener stays behind',
  withClock(async (clock) => {
    const bucket = new TokenBucket('repair', { rate_per_s: 1000, burst: 10 });
    const control = new AbortController();
    await bucket.take(10, control.signal);
    assert.equal(clock.timers.length, 0);
    const waiting = [bucket.take(10, control.signal), bucket.take(10, control.signal)];
    assert.equal(clock.timers.length, 1);
    assert.equal(getEventListeners(control.signal, 'abort').length, 2);
    await clock.advance(20);
    await Promise.all(waiting);
    assert.equal(clock.timers.length, 0);
    assert.equal(getEventListeners(control.signal, 'abort').length, 0);
  }),
);

test(
  'a new rate applies at once, even to waiting callers; rate 0 stops the flow until the next rate',
  withClock(async (clock) => {
    const bucket = new TokenBucket('repair', { rate_per_s: 1000, burst: 100 });
    const { log, add } = served(clock);
    bucket.tryTake(100);
    add('a', bucket.take(100, forever));
    await clock.advance(50);
    bucket.setRate(0);
    assert.equal(clock.timers.length, 0);
    assert.equal(bucket.retryAfter_ms(), Infinity);
    await clock.advance(1e6);
    assert.deepEqual(log, []);
    bucket.setRate(100);
    await clock.advance(499);
    assert.deepEqual(log, []);
    await clock.advance(1);
    assert.deepEqual(log, [`a@${1e6 + 550}`]);
  }),
);

test(
  'more than the burst, or no whole number, is refused loudly; so is one waiter too many',
  withClock(async (clock) => {
    const bucket = new TokenBucket('repair', { rate_per_s: 10, burst: 5, waiters_max: 2 });
    for (const count of [6, -1, 0.5, Number.NaN]) {
      assert.throws(() => bucket.tryTake(count), /cannot take/);
      await assert.rejects(bucket.take(count, forever), /from 0 to 5/);
    }
    bucket.tryTake(5);
    const waiting = [bucket.take(1, forever), bucket.take(2, forever)];
    const refused = bucket.take(2, forever);
    await assert.rejects(refused, (error) => isRonError(error, 'paced') && error.retry_after_ms === 500);
    await clock.advance(300);
    await Promise.all(waiting);
  }),
);

test(
  'close refuses waiting and later callers, and leaves no timer',
  withClock(async (clock) => {
    const bucket = new TokenBucket('repair', { rate_per_s: 10, burst: 5 });
    bucket.tryTake(5);
    const waiting = assert.rejects(bucket.take(1, forever), (error) => isRonError(error, 'closed'));
    bucket.close();
    await bucket[Symbol.asyncDispose]();
    await waiting;
    await assert.rejects(bucket.take(0, forever), (error) => isRonError(error, 'closed'));
    assert.deepEqual([bucket.tryTake(0), bucket.takeUpTo(1), clock.timers.length], [false, 0, 0]);
  }),
);

test(
  'a charge takes tokens that are not there; callers wait until they have flowed in',
  withClock(async (clock) => {
    const bucket = new TokenBucket('rps', { rate_per_s: 10, burst: 3 });
    bucket.charge(13);
    assert.deepEqual([bucket.tryTake(), bucket.takeUpTo(3), bucket.retryAfter_ms()], [false, 0, 1100]);
    clock.advanceSync(1000);
    assert.equal(bucket.tryTake(), false);
    const { log, add } = served(clock);
    add('a', bucket.take(1, forever));
    await clock.advance(50);
    bucket.charge(2);
    await clock.advance(249);
    assert.deepEqual(log, []);
    await clock.advance(1);
    assert.deepEqual(log, ['a@1300']);
    clock.advanceSync(60_000);
    assert.equal(bucket.takeUpTo(9 - 6), 3, 'no more than the burst');
    for (const count of [-1, 0.5, Infinity]) assert.throws(() => bucket.charge(count));
  }),
);

test('limits that make no sense are refused', () => {
  for (const burst of [0, 1.5, 1e10, Number.NaN]) {
    assert.throws(() => new TokenBucket('b', { rate_per_s: 1, burst }), RonError);
  }
  const bucket = new TokenBucket('b', { rate_per_s: 1, burst: 1 });
  for (const rate_per_s of [-1, Infinity, Number.NaN]) {
    assert.throws(() => new TokenBucket('b', { rate_per_s, burst: 1 }), RonError);
    assert.throws(() => bucket.setRate(rate_per_s), RonError);
  }
  assert.equal(bucket.rate_per_s, 1);
});

type Command =
  | { do: 'tryTake' | 'take' | 'takeUpTo'; count: number }
  | { do: 'cancel'; which: number }
  | { do: 'setRate'; rate_per_s: number }
  | { do: 'advance'; ms: number };

const commands = (rate: fc.Arbitrary<number>, ms: fc.Arbitrary<number>): fc.Arbitrary<Command[]> =>
  fc.array(
    fc.oneof(
      fc.record({ do: fc.constantFrom('tryTake', 'take', 'takeUpTo'), count: fc.nat(20) }),
      fc.record({ do: fc.constantFrom('tryTake', 'take', 'takeUpTo'), count: fc.nat(3) }),
      fc.record({ do: fc.constant('cancel'), which: fc.nat(10) }),
      fc.record({ do: fc.constant('setRate'), rate_per_s: rate }),
      fc.record({ do: fc.constant('advance'), ms }),
      fc.record({ do: fc.constant('advance'), ms }),
    ),
    { minLength: 10, maxLength: 60 },
  );

interface Grant {
  readonly count: number;
  /** Tokens that had flowed, overflow included, when it was given. */
  readonly flowed: number;
}

/** Plays the commands and returns every grant, in order, with the flow up to it. Checks first come, first served. */
async function play(init: { rate_per_s: number; burst: number; start_ms: number }, list: Command[]): Promise<Grant[]> {
  const clock = new VirtualSched(init.start_ms);
  return clock.during(async () => {
    const bucket = new TokenBucket('b', init);
    const grants: Grant[] = [];
    const waiting: { id: number; control: AbortController }[] = [];
    let flowed = 0;
    let flowed_at_ms = clock.now_ms();
    let arrivals = 0;
    let newest = -1;
    const grant = (count: number): void => {
      flowed += ((clock.now_ms() - flowed_at_ms) * bucket.rate_per_s) / 1000;
      flowed_at_ms = clock.now_ms();
      if (count > 0) grants.push({ count, flowed });
    };
    const take = (count: number): void => {
      const entry = { id: arrivals++, control: new AbortController() };
      waiting.push(entry);
      const leave = (): void => void waiting.splice(waiting.indexOf(entry), 1);
      const onServed = (): void => {
        grant(count);
        assert.ok(entry.id > newest, 'served out of order');
        newest = entry.id;
        leave();
      };
      void bucket.take(count, entry.control.signal).then(onServed, leave);
    };
    for (const command of list) {
      if (command.do === 'tryTake' && bucket.tryTake(Math.min(command.count, init.burst))) {
        grant(Math.min(command.count, init.burst));
        assert.equal(bucket.waiters, 0, 'tryTake overtook the line');
      } else if (command.do === 'takeUpTo') grant(bucket.takeUpTo(Math.min(command.count, init.burst)));
      else if (command.do === 'take') take(Math.min(command.count, init.burst));
      else if (command.do === 'cancel') waiting[command.which]?.control.abort();
      else if (command.do === 'advance') await clock.advance(command.ms);
      else if (command.do === 'setRate') {
        grant(0);
        bucket.setRate(command.rate_per_s);
      }
      await clock.settle();
    }
    // All waiters are served in the end. The rate and the step are parts of a power of two, so that sums stay exact.
    if (bucket.rate_per_s === 0) bucket.setRate(125);
    grant(0);
    for (let round = 0; round < 100 && bucket.waiters > 0; round++)
      await clock.advance(bucket.retryAfter_ms(0) + 1 / 1024);
    assert.deepEqual([bucket.waiters, waiting.length, clock.timers.length], [0, 0, 0]);
    return grants;
  });
}

/** The most by which any window exceeds the inflow during it plus the burst. */
function excess(grants: readonly Grant[], burst: number): number {
  let worst = -Infinity;
  for (let first = 0; first < grants.length; first++) {
    let given = 0;
    for (let last = first; last < grants.length; last++) {
      given += grants[last]!.count;
      worst = Math.max(worst, given - burst - (grants[last]!.flowed - grants[first]!.flowed));
    }
  }
  return worst;
}

test('property: no window ever gets more than rate x t + burst, exactly, for whole rates and times', async () => {
  // Tokens and times are then whole parts of a power of two, in the test's own sums too: no tolerance is needed.
  const rate = fc.constantFrom(0, 125, 250, 500, 1000, 4000, 64_000);
  const all = fc.tuple(rate, fc.integer({ min: 1, max: 20 }), commands(rate, fc.nat(40)));
  await fc.assert(
    fc.asyncProperty(all, async ([rate_per_s, burst, list]) => {
      assert.ok(excess(await play({ rate_per_s, burst, start_ms: 0 }, list), burst) <= 0);
    }),
  );
});

test('property: for any rate and any time the excess is at most the rounding of the numbers themselves', async () => {
  const rate = fc.oneof(fc.constant(0), fc.double({ min: 0.01, max: 1e5, noNaN: true }));
  const ms = fc.double({ min: 0, max: 50, noNaN: true });
  const start_ms = fc.constantFrom(0, 1e3, 1e9);
  const all = fc.tuple(rate, fc.integer({ min: 1, max: 20 }), start_ms, commands(rate, ms));
  await fc.assert(
    fc.asyncProperty(all, async ([rate_per_s, burst, at_ms, list]) => {
      const grants = await play({ rate_per_s, burst, start_ms: at_ms }, list);
      assert.ok(excess(grants, burst) <= 1e-9 * (1 + (grants.at(-1)?.flowed ?? 0)));
    }),
  );
});

test('property: a caller that waits as long as retryAfter_ms says gets the tokens, and not one step earlier', async () => {
  const all = fc.tuple(
    fc.integer({ min: 1, max: 1e6 }),
    fc.integer({ min: 1, max: 1e6 }),
    fc.double({ min: 0, max: 1, noNaN: true }),
  );
  await fc.assert(
    fc.asyncProperty(all, async ([rate_per_s, burst, part]) => {
      const clock = new VirtualSched();
      await clock.during(() => {
        const bucket = new TokenBucket('b', { rate_per_s, burst });
        assert.ok(bucket.tryTake(burst));
        const count = Math.max(1, Math.floor(burst * part));
        const wait_ms = bucket.retryAfter_ms(count);
        clock.advanceSync(wait_ms - 0.002);
        assert.equal(bucket.tryTake(count), false);
        clock.advanceSync(0.003);
        assert.equal(bucket.tryTake(count), true);
      });
    }),
  );
});
