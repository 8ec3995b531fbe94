import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { Slots } from './slots.ts';

const { signal } = new AbortController();

test('slots never exceed their bounds, every waiter gets one or its abort, and none is lost', async () => {
  const step = fc.oneof(
    fc.record({ do: fc.constant('acquire' as const), origin: fc.constantFrom('a', 'b', 'c') }),
    fc.record({ do: fc.constant('release' as const), at: fc.nat(10) }),
    fc.record({ do: fc.constant('abort' as const), at: fc.nat(10) }),
  );
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 60 }), async (steps) => {
      const slots = new Slots({ sockets_per_origin: 2, sockets_max: 3, waiting_max: 2 });
      const held: { origin: string; release: () => void }[] = [];
      const waiting: AbortController[] = [];
      const outcomes = { given: 0, busy: 0, aborted: 0 };
      let asked = 0;
      for (const each of steps) {
        if (each.do === 'acquire') {
          asked++;
          const controller = new AbortController();
          waiting.push(controller);
          slots.acquire(each.origin, controller.signal).then(
            (release) => (outcomes.given++, held.push({ origin: each.origin, release })),
            (error: { code?: string }) => void outcomes[error.code === 'busy' ? 'busy' : 'aborted']++,
          );
        } else if (each.do === 'release') held.splice(each.at, 1).forEach(({ release }) => (release(), release()));
        else waiting[each.at]?.abort(new Error('left'));
        await new Promise((resolve) => void setImmediate(resolve));
        assert.equal(slots.used, held.length);
        assert.ok(slots.used <= 3 && slots.waiting <= 2);
        for (const origin of ['a', 'b', 'c']) assert.ok(held.filter((slot) => slot.origin === origin).length <= 2);
        assert.equal(outcomes.given + outcomes.busy + outcomes.aborted + slots.waiting, asked);
        // No waiter is left behind a slot that it could have.
        if (slots.waiting > 0) assert.ok(slots.used === 3 || held.length >= 2);
      }
      while (held.length > 0) {
        held.pop()!.release();
        await new Promise((resolve) => void setImmediate(resolve));
      }
      assert.deepEqual([slots.used, slots.waiting], [0, 0]);
    }),
    { numRuns: Number(process.env['RON_FUZZ_RUNS'] ?? 100) },
  );
});

test('a full origin does not block others, and waiters of one origin are first in, first out', async () => {
  const slots = new Slots({ sockets_per_origin: 1, sockets_max: 2, waiting_max: 10 });
  const order: string[] = [];
  const take = async (origin: string, name: string): Promise<() => void> => {
    const release = await slots.acquire(origin, signal);
    order.push(name);
    return release;
  };
  const first = await take('a', 'a1');
  const second = take('a', 'a2');
  const third = take('a', 'a3');
  const other = await take('b', 'b1');
  other();
  first();
  (await second)();
  (await third)();
  assert.deepEqual(order, ['a1', 'b1', 'a2', 'a3']);
  await assert.rejects(slots.acquire('a', AbortSignal.abort(new Error('left'))), /left/);
});
