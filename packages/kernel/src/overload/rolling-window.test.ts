import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { RonError } from '../errors.ts';
import { RollingWindow } from './rolling-window.ts';
import { VirtualSched } from '../virtual-sched.ts';

const WINDOW_MS = 100;

test('property: total and covering bracket the true count of the window', async () => {
  const event = fc.record({
    wait_ms: fc.oneof(fc.integer({ min: 0, max: 30 }), fc.double({ min: 0, max: 250, noNaN: true })),
    lane: fc.nat(1),
  });
  await fc.assert(
    fc.asyncProperty(
      fc.array(event, { minLength: 20, maxLength: 60 }),
      fc.integer({ min: 1, max: 12 }),
      async (events, slots) => {
        const clock = new VirtualSched();
        await clock.during(() => {
          const window = new RollingWindow({ window_ms: WINDOW_MS, slots });
          const seen: { at_ms: number; lane: number }[] = [];
          const since = (lane: number, age_ms: number): number =>
            seen.filter((one) => one.lane === lane && clock.now_ms() - one.at_ms < age_ms).length;
          for (const { wait_ms, lane } of events) {
            clock.advanceSync(wait_ms);
            window.add(lane);
            seen.push({ at_ms: clock.now_ms(), lane });
            // Slot borders are sums of fractions: allow for the last bit of them.
            const slot_ms = WINDOW_MS / slots;
            assert.ok(window.total(lane) <= since(lane, WINDOW_MS + 1e-6));
            assert.ok(window.total(lane) >= since(lane, WINDOW_MS - slot_ms - 1e-6));
            assert.ok(window.covering(lane) >= since(lane, WINDOW_MS - 1e-6));
            assert.ok(window.covering(lane) <= since(lane, WINDOW_MS + slot_ms + 1e-6));
          }
        });
      },
    ),
  );
});

test('a long silence empties it, and clear forgets all lanes', async () => {
  const clock = new VirtualSched();
  await clock.during(() => {
    const window = new RollingWindow({ window_ms: WINDOW_MS });
    window.add(0, 5);
    window.add(1, 7);
    clock.advanceSync(1e12);
    assert.deepEqual([window.covering(0), window.covering(1)], [0, 0]);
    window.add(1);
    window.clear();
    assert.deepEqual([window.total(1), window.covering(1)], [0, 0]);
  });
});

test('a window without a length is refused', () => {
  assert.throws(() => new RollingWindow({ window_ms: 0 }), RonError);
  assert.throws(() => new RollingWindow({ window_ms: 1, slots: 0 }), RonError);
});
