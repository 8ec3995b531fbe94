import assert from 'node:assert/strict';
import { getEventListeners } from 'node:events';
import { test } from 'node:test';
import { isRonError } from '../errors.ts';
import { NEVER } from './never.ts';
import { VirtualSched } from '../virtual-sched.ts';
import { SingleFlight, type Flight } from './single-flight.ts';

const untilAborted = ({ signal }: Flight): Promise<never> =>
  new Promise((_resolve, reject) => signal.addEventListener('abort', () => reject(signal.reason), { once: true }));

test('callers share a value, callers share an error, and the next call starts anew', async () => {
  const flights = new SingleFlight<number>('test', { runs_max: 1 });
  let runs = 0;
  const call = (): Promise<number> =>
    flights.run('key', NEVER, async () => {
      runs += 1;
      await Promise.resolve();
      if (runs === 2) throw new Error('second run');
      return runs;
    });
  assert.deepEqual(await Promise.all([call(), call()]), [1, 1]);
  for (const outcome of await Promise.allSettled([call(), call()])) assert.equal(outcome.status, 'rejected');
  assert.equal(await call(), 3);
  assert.equal(flights.size, 0);
});

test('a start that throws at once rejects its callers', async () => {
  const flights = new SingleFlight<number>('test', { runs_max: 1 });
  const call = (): Promise<number> =>
    flights.run('key', NEVER, () => {
      throw new Error('no start');
    });
  await assert.rejects(call(), /no start/);
  assert.equal(flights.size, 0);
});

test('a run beyond runs_max is refused, even if an aborted run ignores its signal', async () => {
  const flights = new SingleFlight<void>('test', { runs_max: 1 });
  const stubborn = Promise.withResolvers<void>();
  const leaving = new AbortController();
  const left = flights.run('a', leaving.signal, () => stubborn.promise);
  leaving.abort(new Error('gone'));
  await assert.rejects(left, /gone/);
  for (const key of ['a', 'b']) {
    await assert.rejects(
      flights.run(key, NEVER, () => Promise.resolve()),
      (error) => isRonError(error, 'busy'),
    );
  }
  stubborn.resolve();
  await stubborn.promise;
  await flights.run('b', NEVER, () => Promise.resolve());
});

test('when the last caller leaves, the run is aborted with its reason', async () => {
  const flights = new SingleFlight<void>('test', { runs_max: 2 });
  const [first, last] = [new AbortController(), new AbortController()];
  let seen: Flight | undefined;
  const start = (flight: Flight): Promise<never> => untilAborted((seen = flight));
  const calls = [flights.run('key', first.signal, start), flights.run('key', last.signal, start)];
  first.abort(new Error('first'));
  assert.equal(seen?.signal.aborted, false);
  last.abort(new Error('last'));
  assert.equal(seen?.signal.reason, last.signal.reason);
  assert.equal(seen?.isDetached, true);
  await assert.rejects(calls[0]!, /first/);
  await assert.rejects(calls[1]!, /last/);
});

test('with outlives_ms a run goes on without callers until its deadline, and later callers join it', async () => {
  const clock = new VirtualSched();
  await clock.during(async () => {
    const flights = new SingleFlight<string>('test', { runs_max: 1, outlives_ms: 100 });
    const filled = Promise.withResolvers<string>();
    const leaving = new AbortController();
    let runs = 0;
    const start = (): Promise<string> => {
      runs += 1;
      return filled.promise;
    };
    const left = flights.run('key', leaving.signal, start);
    leaving.abort(new Error('gone'));
    await assert.rejects(left, /gone/);
    const joined = flights.run('key', NEVER, start);
    filled.resolve('filled');
    assert.equal(await joined, 'filled');
    assert.equal(runs, 1);
    assert.equal(clock.timers.length, 0, 'the deadline is disposed');

    let seen: Flight | undefined;
    const late = flights.run('key', NEVER, (flight) => untilAborted((seen = flight)));
    await Promise.all([clock.advance(100), assert.rejects(late, (error) => isRonError(error, 'timeout'))]);
    assert.equal(seen?.signal.aborted, true);
    assert.equal(flights.size, 0);
  });
});

test('a run whose deadline is over before it begins is answered and not counted', async () => {
  const flights = new SingleFlight<number>('test', { runs_max: 1, outlives_ms: 0 });
  for (let call = 0; call < 3; call++) {
    await assert.rejects(
      flights.run('key', NEVER, async () => assert.fail('the work began')),
      (error) => isRonError(error, 'timeout'),
    );
    assert.equal(flights.size, 0);
  }
  await flights.close();
});

test('close answers the callers of a run that ignores its abort', async () => {
  const flights = new SingleFlight<void>('test', { runs_max: 1 });
  const stubborn = Promise.withResolvers<void>();
  let isAnswered = false;
  const call = assert
    .rejects(
      flights.run('key', NEVER, () => stubborn.promise),
      (error) => isRonError(error, 'closed'),
    )
    .then(() => (isAnswered = true));
  const closed = flights.close();
  await new Promise((resolve) => void setImmediate(resolve));
  assert.equal(isAnswered, true, 'before the run ends');
  stubborn.resolve();
  await Promise.all([call, closed]);
});

test('after detach a new run begins, and the old one sees it and answers its own callers', async () => {
  const flights = new SingleFlight<string>('test', { runs_max: 2 });
  const old = Promise.withResolvers<string>();
  let seen: Flight | undefined;
  const before = flights.run('key', NEVER, (flight) => {
    seen = flight;
    return old.promise;
  });
  flights.detach('key');
  assert.equal(seen?.isDetached, true);
  assert.equal(await flights.run('key', NEVER, () => Promise.resolve('new')), 'new');
  old.resolve('old');
  assert.equal(await before, 'old');
});

test('close aborts the runs, rejects callers and newcomers, and waits for the runs to end', async () => {
  const flights = new SingleFlight<void>('test', { runs_max: 1, outlives_ms: 60_000 });
  const ending = Promise.withResolvers<void>();
  const call = flights.run('key', NEVER, (flight) => untilAborted(flight).catch(() => ending.promise));
  const closed = flights.close();
  await assert.rejects(call, (error) => isRonError(error, 'closed'));
  await assert.rejects(
    flights.run('key', NEVER, () => Promise.resolve()),
    (error) => isRonError(error, 'closed'),
  );
  assert.equal(flights.size, 1);
  ending.resolve();
  await closed;
  assert.equal(flights.size, 0);
  await flights.close();
});

test('a run leaves no listener on the signals of its callers', async () => {
  const flights = new SingleFlight<void>('test', { runs_max: 1 });
  const { signal } = new AbortController();
  for (let round = 0; round < 10; round++) await flights.run('key', signal, () => Promise.resolve());
  assert.equal(getEventListeners(signal, 'abort').length, 0);
});
