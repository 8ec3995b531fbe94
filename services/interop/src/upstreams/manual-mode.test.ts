import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Cell, sched } from '@ron/kernel';
import { VirtualSched } from '@ron/kernel/testing';
import { AUTO, ManualMode, type ManualState } from './manual-mode.ts';

const DAY_MS = 24 * 3_600_000;

/** A wall clock that can be set. */
class JumpingSched extends VirtualSched {
  jump_ms = 0;

  override wall_ms(): number {
    return super.wall_ms() + this.jump_ms;
  }
}

type Use = (mode: ManualMode, clock: JumpingSched, state: ManualState) => void;

async function withMode(use: Use): Promise<void> {
  const clock = new JumpingSched();
  const state: ManualState = { brownout: AUTO };
  await clock.during(() => use(new ManualMode(new Cell('policy_meta', 1, state)), clock, state));
}

for (const mode of ['on', 'off'] as const)
  test(`the mode ${mode} ends at its time without any task, and auto returns`, () =>
    withMode((manual, clock) => {
      const until_ms = sched.wall_ms() + 1000;
      manual.set({ mode, until_ms, why: 'maintenance' });
      clock.advanceSync(999);
      assert.deepEqual(manual.request, { mode, until_ms, why: 'maintenance' });
      assert.equal(manual.expire(), false);
      clock.advanceSync(1);
      assert.deepEqual(manual.request, { mode: 'auto' });
      assert.equal(manual.expire(), true);
      assert.equal(manual.expire(), false, 'it is reported once');
    }));

test('the end must be given, lie ahead, and be at most 24 h ahead; auto has none', () =>
  withMode((manual) => {
    const now_ms = sched.wall_ms();
    for (const until_ms of [undefined, now_ms, now_ms - 1, now_ms + DAY_MS + 1])
      for (const mode of ['on', 'off'] as const)
        assert.throws(() => manual.set({ mode, ...(until_ms !== undefined && { until_ms }) }), { code: 'validation' });
    assert.throws(() => manual.set({ mode: 'auto', until_ms: now_ms + 1 }), { code: 'validation' });
    assert.equal(manual.mode, 'auto');
    manual.set({ mode: 'on', until_ms: now_ms + DAY_MS });
    assert.equal(manual.mode, 'on');
    manual.set({ mode: 'auto', why: 'done early' });
    assert.deepEqual(manual.request, { mode: 'auto', why: 'done early' });
  }));

test('a wall clock that is set back by an hour does not prolong it, and one set forward ends it', () =>
  withMode((manual, clock) => {
    const set = (): void => manual.set({ mode: 'on', until_ms: sched.wall_ms() + 60_000 });
    set();
    clock.jump_ms = -3_600_000;
    clock.advanceSync(59_999);
    assert.equal(manual.mode, 'on');
    clock.advanceSync(1);
    assert.equal(manual.mode, 'auto');
    set();
    clock.jump_ms = 0;
    assert.equal(manual.mode, 'auto');
  }));

test('[interop I-2] the cell has the mode that requests read, and `auto` again after its end', () =>
  withMode((manual, clock, state) => {
    const until_ms = sched.wall_ms() + 1000;
    manual.set({ mode: 'on', until_ms });
    assert.deepEqual(state.brownout.request, manual.request);
    clock.advanceSync(1000);
    manual.expire();
    assert.equal(state.brownout, AUTO);
  }));
