import assert from 'node:assert/strict';
import { test } from 'node:test';
import { installSched, realSched } from '../sched.ts';
import { VirtualSched } from '../virtual-sched.ts';
import { Brownout, BROWNOUT_DEFAULTS } from './brownout.ts';

/** Runs `use` with a brownout of the default thresholds; `second` makes calls and lets a second pass. */
async function withBrownout(
  use: (test: {
    brownout: Brownout;
    clock: VirtualSched;
    changes: string[];
    second: (calls: number, init?: { errors?: number; latency_ms?: number }) => void;
  }) => void,
): Promise<void> {
  const clock = new VirtualSched();
  await clock.during(() => {
    const changes: string[] = [];
    const onChange = (isActive: boolean): unknown => changes.push(`${isActive} at ${clock.now_ms() / 1000}`);
    const brownout = new Brownout({ ...BROWNOUT_DEFAULTS, onChange: (isActive) => void onChange(isActive) });
    const second = (calls: number, { errors = 0, latency_ms = 10 } = {}): void => {
      for (let call = 0; call < calls; call++) brownout.record(latency_ms, call < errors);
      brownout.evaluate();
      clock.advanceSync(1000);
    };
    use({ brownout, clock, changes, second });
  });
}

test('errors enter above their share and their number, never below either', () =>
  withBrownout(({ brownout, second }) => {
    second(4, { errors: 4 });
    assert.equal(brownout.isActive, false, 'four errors are too few');
    second(496);
    second(500, { errors: 6 });
    assert.equal(brownout.isActive, false, 'exactly one percent');
    assert.equal(brownout.error_rate, 0.01);
    second(1, { errors: 1 });
    assert.equal(brownout.isActive, true);
  }));

test('latency enters at its threshold with enough calls', () =>
  withBrownout(({ brownout, second }) => {
    second(19, { latency_ms: 900 });
    assert.equal(brownout.isActive, false, 'nineteen calls are too few');
    second(1, { latency_ms: 900 });
    assert.equal(brownout.isActive, true);
  }));

test('it lasts at least 30 s, and ends when the last 30 s were good', () =>
  withBrownout(({ brownout, changes, second }) => {
    second(100, { errors: 100 });
    for (let at = 1; at < 20; at++) second(1, { errors: 1 });
    for (let at = 20; at < 45; at++) second(1);
    assert.equal(brownout.isActive, true, 'errors of the last 30 s hold it');
    for (let at = 45; at < 60; at++) second(1);
    assert.deepEqual(changes, ['true at 0', 'false at 51']);
    assert.equal(brownout.isActive, false, 'errors of the last 5 min do not bring it back');
  }));

test('failures and slow calls of the last 30 s hold it, wherever the slots of the window begin', async () => {
  for (const bad of [{ errors: 10 }, { latency_ms: 900 }]) {
    for (let offset_ms = 0; offset_ms < 3000; offset_ms += 250) {
      await withBrownout(({ brownout, clock, second }) => {
        clock.advanceSync(offset_ms);
        second(100, { errors: 100 });
        second(10, bad);
        const failed_ms = clock.now_ms() - 1000;
        while (brownout.isActive) {
          second(1);
          assert.ok(clock.now_ms() < 60_000, 'it ends');
        }
        const held_ms = clock.now_ms() - 1000 - failed_ms;
        assert.ok(held_ms >= 30_000 && held_ms <= 34_000, `held for ${held_ms} ms`);
      });
    }
  }
});

test('time that passes within a call to it changes no decision', (t) => {
  const time = { now_ms: 0, step_ms: 0 };
  const now_ms = (): number => (time.now_ms += time.step_ms) - time.step_ms;
  const previous = installSched({ ...realSched, now_ms });
  t.after(() => installSched(previous));
  const brownout = new Brownout(BROWNOUT_DEFAULTS);
  for (let call = 0; call < 1000; call++) brownout.record(1, call < 5);
  // The calls leave the window between two readings of the clock.
  Object.assign(time, { now_ms: 299_999.9999, step_ms: 0.001 });
  assert.equal(brownout.evaluate(), false, 'half a percent of the calls failed');
  Object.assign(time, { now_ms: 299_999.9999, step_ms: 0.001 });
  assert.ok((brownout.error_rate ?? 0) <= 0.005);
});

test('between the two thresholds it neither begins nor ends', () =>
  withBrownout(({ brownout, second }) => {
    for (let at = 0; at < 60; at++) second(10, { latency_ms: 450 });
    assert.equal(brownout.isActive, false);
    second(1000, { latency_ms: 600 });
    assert.equal(brownout.isActive, true);
    for (let at = 0; at < 90; at++) second(10, { latency_ms: 450 });
    assert.equal(brownout.isActive, true);
    for (let at = 0; at < 40; at++) second(10, { latency_ms: 380 });
    assert.equal(brownout.isActive, false);
    assert.equal(brownout.entered_total, 1);
  }));

test('without calls it stays', () =>
  withBrownout(({ brownout, second }) => {
    second(100, { errors: 100 });
    for (let at = 0; at < 600; at++) second(0);
    assert.equal(brownout.isActive, true);
  }));

test('a target that is bad in every other second changes the state rarely', () =>
  withBrownout(({ changes, second }) => {
    for (let at = 0; at < 600; at++) second(10, { errors: at % 2 === 0 ? 10 : 0 });
    assert.deepEqual(changes, ['true at 0']);
  }));
