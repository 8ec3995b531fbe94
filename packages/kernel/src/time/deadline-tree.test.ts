import assert from 'node:assert/strict';
import { getEventListeners } from 'node:events';
import { test } from 'node:test';
import fc from 'fast-check';
import { Deadline } from './deadline.ts';
import { isRonError } from '../errors.ts';
import { VirtualSched } from '../virtual-sched.ts';

const never = (): Promise<never> => new Promise(() => {});
const isTimeout =
  (op: string) =>
  (error: unknown): boolean =>
    isRonError(error, 'timeout') && error.op === op;

/** Collects unhandled rejections while `use` runs. */
test('a child cut short by its parent carries the error of the parent, which alone is counted', async () => {
  const clock = new VirtualSched();
  await clock.during(async () => {
    const ops: string[] = [];
    const parent = Deadline.after('request', 10, { onExpire: (op) => ops.push(op) });
    const short = parent.child('connect', 4);
    const long = parent.child('body', 50);
    assert.deepEqual([short.remaining_ms, long.remaining_ms], [4, 10]);
    const running = assert.rejects(long.run(never), isTimeout('request'));
    const shortSignal = short.signal;
    await clock.advance(4);
    assert.ok(isTimeout('connect')(shortSignal.reason));
    assert.equal(long.expired, false);
    await clock.advance(6);
    await running;
    assert.ok(parent.expired && long.expired);
    assert.deepEqual(ops, ['connect', 'request']);
  });
});

test('a child that expired before its parent is the one named, even when both are noticed late', async () => {
  const clock = new VirtualSched();
  await clock.during(async () => {
    const ops: string[] = [];
    const parent = Deadline.after('request', 10, { onExpire: (op) => ops.push(op) });
    const child = parent.child('connect', 4);
    await clock.advance(100);
    assert.ok(child.expired);
    assert.ok(isTimeout('connect')(child.signal.reason));
    assert.ok(parent.expired);
    assert.deepEqual(ops, ['connect', 'request']);
  });
});

test('cancelling or disposing a parent ends its children and the work under them', async () => {
  const clock = new VirtualSched();
  await clock.during(async () => {
    for (const end of [(d: Deadline) => d.cancel(), (d: Deadline) => d[Symbol.dispose]()]) {
      const parent = Deadline.after('request', 10);
      const child = parent.child('connect', 5);
      const untouched = parent.child('later', 5);
      const running = assert.rejects(child.run(never), (error) => isRonError(error, 'canceled'));
      end(parent);
      await running;
      assert.equal(child.remaining_ms, 0);
      assert.equal(untouched.remaining_ms, 0);
      assert.ok(isRonError(untouched.signal.reason, 'canceled'));
      assert.equal(untouched.expired, false);
      assert.equal(clock.timers.length, 0);
    }
  });
});

test('an outer signal aborts the whole tree with its own reason', async () => {
  const clock = new VirtualSched();
  await clock.during(async () => {
    const outer = new AbortController();
    const parent = Deadline.after('request', 10, { signal: outer.signal });
    const child = parent.child('connect', 5);
    const running = assert.rejects(child.run(never), /client left/);
    const idle = parent.child('idle', 5);
    outer.abort(new Error('client left'));
    await running;
    assert.match(String(idle.signal.reason), /client left/);
    assert.equal(idle.expired, false);
    assert.equal(clock.timers.length, 0);
  });
});

test('no listener stays on the outer signal once the deadline is over, however it ended', async () => {
  const clock = new VirtualSched();
  await clock.during(async () => {
    const outer = new AbortController();
    const listeners = (): number => getEventListeners(outer.signal, 'abort').length;
    const waiting = Array.from({ length: 4 }, (_, i) => Deadline.after(`d${i}`, 10, { signal: outer.signal }));
    for (const deadline of waiting) void deadline.signal;
    const child = waiting[3]!.child('child', 5);
    void child.signal;
    assert.equal(listeners(), 4);
    waiting[0]![Symbol.dispose]();
    waiting[1]!.cancel();
    assert.equal(listeners(), 2);
    await clock.advance(10);
    assert.equal(listeners(), 0);
    const last = Deadline.after('last', 10, { signal: outer.signal });
    void last.signal;
    outer.abort();
    assert.equal(listeners(), 0);
  });
});

test('a parent that makes many children keeps none of them', async () => {
  const clock = new VirtualSched();
  await clock.during(async () => {
    const parent = Deadline.after('request', 1000);
    for (let i = 0; i < 100; i++) {
      using child = parent.child('step', 10);
      await child.run(async () => i);
    }
    // Silence proves that nothing follows the parent any more: with followers left it would cancel them aloud.
    const { signal } = parent;
    parent[Symbol.dispose]();
    assert.equal(signal.aborted, false);
    assert.equal(clock.timers.length, 0);
  });
});

test('property: no descendant outlives its ancestors, and each op is counted at most once', async () => {
  const tree = fc.array(
    fc.record({ parent: fc.nat(9), budget_ms: fc.integer({ min: 0, max: 40 }), wait: fc.boolean() }),
    {
      minLength: 1,
      maxLength: 10,
    },
  );
  const steps = fc.array(fc.integer({ min: 0, max: 9 }), { maxLength: 8 });
  await fc.assert(
    fc.asyncProperty(tree, steps, async (nodes, advances) => {
      const clock = new VirtualSched();
      await clock.during(async () => {
        const counted: string[] = [];
        const made: { deadline: Deadline; end_ms: number; parent: Deadline | undefined }[] = [];
        for (const [index, node] of nodes.entries()) {
          const above = index === 0 ? undefined : made[node.parent % index]!;
          const init = { onExpire: (op: string) => void counted.push(op), ...(above && { parent: above.deadline }) };
          const deadline = Deadline.after(`op${index}`, node.budget_ms, init);
          const end_ms = Math.min(above?.end_ms ?? Infinity, clock.now_ms() + node.budget_ms);
          if (node.wait) void deadline.signal;
          made.push({ deadline, end_ms, parent: above?.deadline });
          clock.advanceSync(advances[index] ?? 0);
        }
        for (const { deadline, end_ms, parent } of made.toReversed()) {
          assert.equal(deadline.expired, clock.now_ms() >= end_ms);
          assert.equal(deadline.remaining_ms, Math.max(0, end_ms - clock.now_ms()));
          if (parent?.expired === true) assert.ok(deadline.expired);
        }
        assert.equal(new Set(counted).size, counted.length);
        for (const { deadline } of made) deadline[Symbol.dispose]();
        assert.equal(clock.timers.length, 0);
      });
    }),
  );
});
