import assert from 'node:assert/strict';
import { test } from 'node:test';
import { installProbe, realSched, sched } from '@ron/kernel/sched';
import { assertHolds, explore, type Build } from './index.ts';

const twoTasks: Build = (world) => {
  for (const name of ['a', 'b']) world.task(name, () => world.io('turn'));
  return { state: () => '' };
};

/** Everything global that an exploration replaces while it runs. */
function globals(): unknown[] {
  const probe = installProbe(undefined);
  installProbe(probe);
  return [
    sched,
    probe,
    setTimeout,
    setInterval,
    setImmediate,
    Object.getOwnPropertyDescriptor(AbortSignal.prototype, 'aborted'),
    Object.getOwnPropertyDescriptor(AbortSignal.prototype, 'addEventListener'),
    Object.getOwnPropertyDescriptor(AbortController.prototype, 'abort'),
    Object.getOwnPropertyDescriptor(AbortSignal, 'any'),
    Object.getOwnPropertyDescriptor(AbortSignal, 'timeout'),
    ...process.listeners('unhandledRejection'),
  ];
}

test('leaves every global as it was, for every outcome', async (context) => {
  const listener = (): void => {};
  process.on('unhandledRejection', listener);
  context.after(() => process.off('unhandledRejection', listener));
  const before = globals();
  assert.equal(before[0], realSched);
  await explore(twoTasks, { hash: true, sleepSets: true });
  assert.deepEqual(globals(), before);
  await assert.rejects(
    explore(() => assert.fail('cannot be built'), { sleepSets: true }),
    /cannot be built/,
  );
  assert.deepEqual(globals(), before);
  await Promise.all([explore(twoTasks), explore(twoTasks, { sleepSets: true })]);
  assert.deepEqual(globals(), before);
});

test('works in a test body, after an await, in a microtask, in a timer, and several at a time', async () => {
  const whole = { schedules: 6, complete: true };
  const explored = async (): Promise<object> => {
    const { schedules, complete } = await explore(twoTasks);
    return { schedules, complete };
  };
  assert.deepEqual(await explored(), whole);
  await Promise.resolve();
  assert.deepEqual(await explored(), whole);
  assert.deepEqual(await Promise.resolve().then(explored), whole);
  assert.deepEqual(await new Promise((resolve) => setTimeout(() => resolve(explored()), 1)), whole);
  assert.deepEqual(await Promise.all([explored(), explored(), explored()]), [whole, whole, whole]);
});

test('the event loop gets its turn during a long exploration', async (context) => {
  // Each reading of the clock is a minute later, so every schedule seems to be a long one.
  let now_ms = 0;
  context.mock.method(realSched, 'now_ms', () => (now_ms += 60_000));
  let turns = 0;
  let ticker = setImmediate(function turn() {
    turns++;
    ticker = setImmediate(turn);
  });
  context.after(() => clearImmediate(ticker));
  const { schedules } = await explore(twoTasks);
  assert.equal(schedules, 6);
  assert.ok(turns >= schedules, `${turns} turns`);
});

test('rejections outside the exploration reach the listeners of the process', async (context) => {
  const listener = context.mock.fn();
  const others = process.rawListeners('unhandledRejection') as (() => void)[];
  process.removeAllListeners('unhandledRejection');
  process.on('unhandledRejection', listener);
  try {
    const exploration = explore(twoTasks);
    void Promise.reject(new Error('none of the explorer’s business'));
    await exploration;
  } finally {
    process.removeAllListeners('unhandledRejection');
    for (const other of others) process.on('unhandledRejection', other);
  }
  assert.equal(listener.mock.callCount(), 1);
});

test('reports the cause when microtasks cannot be run', async (context) => {
  context.mock.method(globalThis, 'setImmediate', (next: () => void) => queueMicrotask(next));
  await assert.rejects(explore(twoTasks), /cannot run microtasks here.*real setImmediate/s);
});

test('state that one schedule left behind does not reach the next', async () => {
  const result = await assertHolds((world) => {
    const log: string[] = [];
    const gate = sched.park<void>('gate');
    world.task(
      'waiter',
      async () => {
        await gate.promise;
        log.push('waiter');
      },
      { daemon: true },
    );
    world.task('opener', async () => {
      if (world.choose('open', [false, true])) gate.wake();
    });
    return { final: () => assert.ok(log.length <= 1) };
  });
  assert.equal(result.complete, true);
});
