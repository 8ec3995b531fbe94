import assert from 'node:assert/strict';
import { getEventListeners } from 'node:events';
import { test } from 'node:test';
import { Deadline } from './deadline.ts';
import { isRonError, RonError } from '../errors.ts';
import { installSched, realSched } from '../sched.ts';
import { VirtualSched } from '../virtual-sched.ts';

const never = (): Promise<never> => new Promise(() => {});
const isTimeout =
  (op: string) =>
  (error: unknown): boolean =>
    isRonError(error, 'timeout') && error.op === op;

/** Collects unhandled rejections while `use` runs. */
async function unhandledDuring(use: () => Promise<void>): Promise<unknown[]> {
  const seen: unknown[] = [];
  const onUnhandled = (reason: unknown): void => void seen.push(reason);
  process.on('unhandledRejection', onUnhandled);
  try {
    await use();
    await new Promise((resolve) => setImmediate(resolve));
  } finally {
    process.off('unhandledRejection', onUnhandled);
  }
  return seen;
}

test('a deadline that is only looked at costs no timer and no listener', async () => {
  const clock = new VirtualSched();
  await clock.during(async () => {
    const outer = new AbortController();
    const deadline = Deadline.after('read', 100, { signal: outer.signal });
    const child = deadline.child('connect', 50);
    assert.equal(child.remaining_ms, 50);
    assert.equal(deadline.expired, false);
    assert.equal(clock.timers.length, 0);
    assert.equal(getEventListeners(outer.signal, 'abort').length, 0);
  });
});

test('an unlimited deadline sets no timer, bounds its children by their own budget, and ends with its signal', async () => {
  const clock = new VirtualSched();
  await clock.during(async () => {
    const outer = new AbortController();
    const deadline = Deadline.unlimited('stream', { signal: outer.signal });
    const { signal } = deadline;
    const work = deadline.within(never());
    assert.equal(clock.timers.length, 0);
    assert.equal(deadline.remaining_ms, Infinity);
    const child = deadline.child('step', 50).within(never());
    const late = assert.rejects(child, isTimeout('step'));
    await clock.advance(3e9);
    await late;
    assert.deepEqual([deadline.expired, signal.aborted], [false, false]);
    const left = new RonError('canceled', 'the client went away');
    outer.abort(left);
    await assert.rejects(work, left);
    assert.equal(signal.reason, left);
  });
});

test('the signal aborts with a timeout that names the operation, on time', async () => {
  const clock = new VirtualSched();
  await clock.during(async () => {
    const deadline = Deadline.after('read', 100);
    const { signal } = deadline;
    await clock.advance(99.9);
    assert.equal(signal.aborted, false);
    await clock.advance(0.1);
    assert.ok(isTimeout('read')(signal.reason));
    assert.equal(deadline.remaining_ms, 0);
    assert.equal(clock.timers.length, 0);
  });
});

test('run rejects on time though the work ignores its signal, and a late failure is not unhandled', async () => {
  const clock = new VirtualSched();
  const unhandled = await unhandledDuring(() =>
    clock.during(async () => {
      const late = Promise.withResolvers<string>();
      const outcome = Deadline.after('write', 10).run(() => late.promise);
      // [storage I-4] [kms I-4] [index I-4] [edge I-4] [interop I-4]
      const rejected = assert.rejects(outcome, isTimeout('write'));
      await clock.advance(10);
      await rejected;
      late.reject(new Error('too late to matter'));
    }),
  );
  assert.deepEqual(unhandled, []);
});

test('run gives the work its value, its failure, and a throw before the first await', async () => {
  const clock = new VirtualSched();
  await clock.during(async () => {
    using deadline = Deadline.after('read', 10);
    assert.equal(await deadline.run(async (signal) => (signal.aborted ? 'aborted' : 'value')), 'value');
    await assert.rejects(
      deadline.run(() => Promise.reject(new Error('broken'))),
      /broken/,
    );
    await assert.rejects(
      deadline.run(() => {
        throw new Error('thrown at once');
      }),
      /thrown at once/,
    );
  });
  assert.equal(clock.timers.length, 0);
});

test('a child whose run has ended leaves no timer and no listener, and counts no timeout later', async () => {
  const clock = new VirtualSched();
  await clock.during(async () => {
    const expired: string[] = [];
    const outer = new AbortController();
    using deadline = Deadline.after('request', 5000, { signal: outer.signal, onExpire: (op) => expired.push(op) });
    assert.equal(await deadline.child('read', 100).run(async () => 'bytes'), 'bytes');
    assert.equal(await deadline.child('read', 100).within(Promise.resolve('bytes')), 'bytes');
    await assert.rejects(
      deadline.child('read', 100).run(() => Promise.reject(new Error('broken'))),
      /broken/,
    );
    assert.equal(clock.timers.length, 0);
    assert.equal(getEventListeners(outer.signal, 'abort').length, 0);
    await clock.advance(200);
    assert.deepEqual(expired, []);
  });
});

test('a deadline bounds each of several runs, and its signal, even if an earlier run has ended', async () => {
  const clock = new VirtualSched();
  await clock.during(async () => {
    const expired: string[] = [];
    const init = { onExpire: (op: string): void => void expired.push(op) };
    const ran = Deadline.after('runs', 100, init);
    await ran.run(async () => undefined);
    const second = assert.rejects(ran.run(never), isTimeout('runs'));
    const read = Deadline.after('signal', 100, init);
    await read.run(async () => undefined);
    const { signal } = read;
    await read.run(async () => undefined);
    const parent = Deadline.after('parent', 1000, init);
    const child = parent.child('child', 500);
    await child.run(async () => undefined);
    const cancelled = assert.rejects(child.run(never), /stop/);
    await clock.advance(99);
    assert.equal(signal.aborted, false);
    await clock.advance(1);
    await second;
    assert.ok(isTimeout('signal')(signal.reason));
    parent.cancel(new Error('stop'));
    await cancelled;
    assert.deepEqual(expired, ['runs', 'signal']);
    const late = Deadline.after('late', 100, init);
    await late.run(async () => undefined);
    await clock.advance(100);
    assert.ok(isTimeout('late')(late.signal.reason), 'noticed by the caller');
    assert.deepEqual(expired, ['runs', 'signal', 'late']);
    assert.equal(clock.timers.length, 0);
  });
});

test('run does not start work when the deadline is over', async () => {
  await new VirtualSched().during(async () => {
    let started = 0;
    const work = async (): Promise<void> => void started++;
    await assert.rejects(Deadline.after('read', 0).run(work), isTimeout('read'));
    await assert.rejects(Deadline.after('read', -5).run(work), isTimeout('read'));
    await assert.rejects(Deadline.after('read', 9, { signal: AbortSignal.abort('gone') }).run(work), /gone/);
    assert.equal(started, 0);
  });
});

test('run and within settle even if the clock moves with every reading', async (t) => {
  for (const budget_ms of [0.5, 1.5, 2.5, 3.5, 4.5]) {
    for (const parent_ms of [budget_ms, 2]) {
      let now_ms = 0;
      const timers: (() => void)[] = [];
      const timer = (_delay_ms: number, fire: () => void): { cancel: () => void } => {
        timers.push(fire);
        return { cancel: () => undefined };
      };
      const previous = installSched({ ...realSched, now_ms: () => (now_ms += 1), timer });
      t.after(() => installSched(previous));
      const parent = Deadline.after('request', parent_ms);
      const abortedAtStart: boolean[] = [];
      const work = (signal: AbortSignal): Promise<never> => {
        abortedAtStart.push(signal.aborted);
        return never();
      };
      const outcomes = [parent.child('read', budget_ms).run(work), parent.child('read', budget_ms).within(never())];
      const settled = [false, false];
      for (const [index, outcome] of outcomes.entries()) outcome.catch(() => (settled[index] = true));
      for (const fire of timers) fire();
      await realSched.pause('settle');
      installSched(previous);
      assert.ok(!abortedAtStart.includes(true), 'work does not start after the end');
      assert.deepEqual(settled, [true, true], `budget ${budget_ms} ms of ${parent_ms} ms`);
    }
  }
});

test('a signal that is read while `within` waits does not set a second timer', async () => {
  const clock = new VirtualSched();
  await clock.during(async () => {
    const deadline = Deadline.after('read', 10);
    const waiting = assert.rejects(deadline.within(never()), isTimeout('read'));
    const { signal } = deadline;
    assert.equal(clock.timers.length, 1);
    await clock.advance(10);
    await waiting;
    assert.ok(signal.aborted);
  });
});

test('a listener that comes after the end is called at once, even if a parent ended', async () => {
  await new VirtualSched().during(async () => {
    const parent = Deadline.after('request', 10);
    const child = parent.child('read', 5);
    const reasons: unknown[] = [];
    const ended = new Error('ended');
    parent.cancel(ended);
    child.onOver((reason) => void reasons.push(reason));
    parent.onOver((reason) => void reasons.push(reason));
    assert.deepEqual(reasons, [ended, ended]);
  });
});

test('onExpire is called exactly once, by timer or by reading, and not for a cancelled or disposed deadline', async () => {
  const clock = new VirtualSched();
  await clock.during(async () => {
    const ops: string[] = [];
    const onExpire = (op: string): void => void ops.push(op);
    const looked = Deadline.after('looked', 10, { onExpire });
    const remaining = Deadline.after('remaining', 10, { onExpire });
    const waited = Deadline.after('waited', 10, { onExpire });
    const both = Deadline.after('both', 10, { onExpire });
    const canceled = Deadline.after('canceled', 10, { onExpire });
    const disposed = Deadline.after('disposed', 10, { onExpire });
    const signals = [waited.signal, both.signal, canceled.signal, disposed.signal];
    canceled.cancel();
    disposed[Symbol.dispose]();
    await clock.advance(20);
    assert.deepEqual([looked.expired, looked.expired, both.expired, remaining.remaining_ms], [true, true, true, 0]);
    assert.deepEqual([canceled.expired, disposed.expired], [false, false]);
    assert.deepEqual(
      signals.map((signal) => signal.aborted),
      [true, true, true, false],
    );
    assert.deepEqual(ops.toSorted(), ['both', 'looked', 'remaining', 'waited']);
  });
});

test('disposing stays silent when nothing runs under the deadline any more', async () => {
  const clock = new VirtualSched();
  await clock.during(async () => {
    const deadline = Deadline.after('read', 10);
    const child = deadline.child('part', 5);
    await child.run(async () => 1);
    child[Symbol.dispose]();
    const { signal } = deadline;
    deadline[Symbol.dispose]();
    deadline[Symbol.dispose]();
    deadline.cancel();
    await clock.advance(50);
    assert.equal(signal.aborted, false);
    await assert.rejects(deadline.run(never), (error) => isRonError(error, 'canceled'));
  });
});

test('a budget that is not a finite number is refused', () => {
  for (const budget_ms of [Number.NaN, Number.POSITIVE_INFINITY]) {
    assert.throws(() => Deadline.after('read', budget_ms), RonError);
  }
});

test('within waits for work that cannot be stopped, and no longer than the budget', async () => {
  assert.equal(await Deadline.after('op', 1000).within(Promise.resolve(7)), 7);
  await assert.rejects(Deadline.after('op', 1000).within(Promise.reject(new Error('mine'))), /mine/);
  const expired: string[] = [];
  const late = Deadline.after('op', 20, { onExpire: (op) => void expired.push(op) });
  const stuck = Promise.withResolvers<never>();
  await assert.rejects(late.within(stuck.promise), { code: 'timeout' });
  assert.deepEqual(expired, ['op']);
  // A failure that comes too late is ignored.
  stuck.reject(new Error('too late'));
  const failing = Promise.reject(new Error('after the end'));
  await assert.rejects(late.within(failing), { code: 'timeout' });
  const parent = Deadline.after('parent', 1000);
  const waiting = parent.child('child', 500).within(new Promise(() => undefined));
  parent.cancel(new Error('given up'));
  await assert.rejects(waiting, /given up/);
});
