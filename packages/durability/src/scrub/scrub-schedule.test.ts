/** When passes begin, how they share the rate, and which are reported as late. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { MemoryVolume, type ScrubCursor, type ScrubStep, type Volume } from '@ron/cas';
import { sleep } from '@ron/kernel';
import { VirtualSched } from '@ron/kernel/testing';
import { Scrubber } from './scrub.ts';
import { VolumeSet } from '../set/volume-set.ts';

const GIB = 1024 ** 3;
const HOUR_MS = 3_600_000;
const STEP_BYTES = GIB / 4;

/** A volume that seems to hold `used_bytes`, which a scrub reads in steps. */
function large(name: string, used_bytes: number): Volume {
  const end: readonly [number, number] = [1, 0];
  const step = (after: ScrubCursor | undefined): ScrubStep | undefined => {
    const at = after?.at[0] ?? 0;
    if (at * STEP_BYTES >= used_bytes) return undefined;
    return { cursor: { at: [at + 1, 0], end, gaps: [] }, bytes: STEP_BYTES, records: 1, bad: 0, faults: [] };
  };
  return new Proxy<Volume>(new MemoryVolume({ bytes_max: 1e6, name }), {
    get: (target, key) => {
      if (key === 'scrub') return (after: ScrubCursor | undefined) => Promise.resolve(step(after));
      if (key === 'stats') return () => ({ used_bytes, segments: 1 });
      const value: unknown = Reflect.get(target, key);
      return typeof value === 'function' ? (value.bind(target) as unknown) : value;
    },
  });
}

interface Scrubbed {
  readonly clock: VirtualSched;
  readonly scrubber: Scrubber;
  readonly set: VolumeSet;
}

/** Runs a scrubber at 1 GiB in an hour, shared by all volumes, with a period of ten hours. */
async function scrubbing(sizes: readonly number[], use: (scrubbed: Scrubbed) => Promise<void>): Promise<void> {
  const clock = new VirtualSched();
  await clock.during(async () => {
    const stop = new AbortController();
    const members = sizes.map((bytes, index) => ({ volume: large(`v${index}`, bytes) }));
    const set = await VolumeSet.open({ members, signal: stop.signal });
    let turn: Promise<void> = Promise.resolve();
    const pace = (bytes: number, signal: AbortSignal): Promise<void> => {
      turn = turn.then(() => sleep((bytes / GIB) * HOUR_MS, signal, 'pace'));
      return turn;
    };
    const rate_bytes_per_s = (): number => GIB / 3600;
    const scrubber = new Scrubber({
      set,
      pace,
      rate_bytes_per_s,
      onFault: () => undefined,
      period_ms: 10 * HOUR_MS,
    });
    const running = scrubber.runForever(stop.signal);
    await clock.settle();
    await use({ clock, scrubber, set });
    stop.abort();
    await running;
  });
}

test('passes begin a period apart, however long they take', async () => {
  await scrubbing([4 * GIB], async ({ clock, scrubber, set }) => {
    const begun = new Map<number, number>();
    for (let minutes = 0; minutes < 40 * 60; minutes += 1) {
      await clock.advance(60_000);
      const { pass, begun_s } = scrubber.states.get(set.member('v0').id)!;
      begun.set(pass, begun_s);
    }
    const times = [...begun.values()];
    assert.ok(times.length >= 4, `${times.length} passes`);
    for (const [index, time] of times.slice(1).entries()) {
      const apart_h = (time - times[index]!) / 3600;
      assert.ok(apart_h >= 9 && apart_h < 11.1, `${apart_h} hours from pass to pass`);
    }
    assert.equal(scrubber.late.size, 0);
  });
});

test('volumes are read concurrently at one rate, and each continues when another has ended', async () => {
  await scrubbing([GIB, 3 * GIB, 3 * GIB], async ({ clock, scrubber, set }) => {
    const running = (): string[] =>
      [...scrubber.states].flatMap(([id, state]) => (state.isRunning ? [set.member(id).name] : []));
    await clock.advance(2 * HOUR_MS);
    assert.deepEqual(running().toSorted(), ['v0', 'v1', 'v2']);
    const read = [...scrubber.states.values()].map((state) => state.bytes / GIB);
    assert.ok(Math.max(...read) - Math.min(...read) <= 0.5, `${read.join()} GiB were read`);
    assert.ok(read.reduce((sum, each) => sum + each, 0) <= 3, 'they share the rate');
    await clock.advance(3 * HOUR_MS);
    assert.deepEqual(running().toSorted(), ['v1', 'v2']);
    await clock.advance(3 * HOUR_MS);
    assert.deepEqual(running(), []);
  });
});

test('a pass that cannot end within its period at this rate is reported, with the bytes left and the time they take', async () => {
  await scrubbing([6 * GIB, 6 * GIB, GIB], async ({ clock, scrubber }) => {
    // Side by side the large ones end after thirteen hours, the small one after three.
    assert.deepEqual([...scrubber.late.keys()].toSorted(), ['v0', 'v1']);
    assert.match(
      scrubber.late.get('v0')!,
      /5\.8 GiB are left to read, which takes 12\.3 h; its period ends in 10\.0 h/,
    );
    await clock.advance(11 * HOUR_MS);
    assert.match(scrubber.late.get('v0')!, /the period of the pass is over/);
  });
  await scrubbing([8 * GIB], async ({ scrubber, set }) => {
    assert.equal(scrubber.late.size, 0);
    assert.ok(scrubber.states.get(set.member('v0').id)!.isRunning);
    await Promise.resolve();
  });
});
