/**
 * Volumes that come, go and miss things while something is removed, on the real set, with volumes whose operations end when
 * the explorer says so. What was removed stays removed, whoever counts has heard it, and a crash right after the
 * acknowledgement changes nothing of that: a set that is opened anew over the same volumes says so too.
 */
import assert from 'node:assert/strict';
import { blake3 } from '@napi-rs/blake-hash';
import { RecordType, type NewRecord } from '@ron/cas';
import type { Build, World } from '@ron/explorer';
import { isRonError } from '@ron/kernel';
import { ModelVolume } from '../testing/model-volume.ts';
import type { VolumeSet } from '../set/volume-set.ts';

export type Sets = Pick<typeof VolumeSet, 'open'>;

const { signal } = new AbortController();
const payload = Buffer.from('object');
const OBJECT: NewRecord = { type: RecordType.object, id: blake3(payload), payload };
const REMOVAL: NewRecord = { type: RecordType.remove, id: OBJECT.id, payload: new Uint8Array(0) };
const NONE = -1;
const SHAPE = { replication_factor: 1, write_min: 1, signal };

/** Only what a model is about takes its time: everything else would only multiply the schedules. */
const volumesOf = (world: World, names: readonly string[], slow: Partial<Record<string, number>>): ModelVolume[] =>
  names.map((name) => new ModelVolume(world, name, ['put'], [slow[name] ?? NONE]));

const openOver = (sets: Sets, volumes: readonly ModelVolume[]): Promise<VolumeSet> =>
  sets.open({ ...SHAPE, members: volumes.map((volume) => ({ volume })) });

/** A set in which every volume has the object; the last one is stale when `isStale`. */
async function setUp(sets: Sets, volumes: readonly ModelVolume[], isStale: boolean): Promise<VolumeSet> {
  const first = await openOver(sets, volumes);
  for (const volume of volumes) await volume.put([OBJECT], signal);
  if (isStale) await first.membership.strike([volumes.at(-1)!.id], signal);
  const set = isStale ? await openOver(sets, volumes) : first;
  for (const volume of volumes) volume.isLive = true;
  return set;
}

/** False when it was refused for now. */
async function isDone(work: Promise<void>): Promise<boolean> {
  try {
    await work;
    return true;
  } catch (error) {
    if (isRonError(error, 'not_ready')) return false;
    throw error;
  }
}

/**
 * Removes the object: whether that was acknowledged; it may be refused when nobody can say that all have heard. What is on
 * the disks at that moment is all that a crash would leave.
 */
async function removeAndCrash(sets: Sets, set: VolumeSet, volumes: readonly ModelVolume[]): Promise<boolean> {
  if (!(await isDone(set.put([REMOVAL], signal)))) return false;
  assert.ok(!set.has('object', OBJECT.id), 'the removal was acknowledged, and it is there');
  const reopened = await openOver(sets, volumes);
  assert.ok(!reopened.has('object', OBJECT.id), 'a crash brought back what was removed');
  return true;
}

function assertRemoved(set: VolumeSet): void {
  assert.ok(!set.has('object', OBJECT.id), 'a removed object came back');
  for (const { name, isCurrent, volume } of set.members) {
    if (isCurrent) assert.ok(!volume.has('object', OBJECT.id), `${name} counts, and has not heard of the removal`);
  }
  assertListed(set);
}

function assertListed(set: VolumeSet): void {
  const { current } = set.membership.roster;
  const counted = set.members.filter((member) => member.isCurrent).map((member) => member.id);
  assert.deepEqual(current.toSorted(), counted.toSorted(), 'the list is not what counts');
}

/** A stale volume is told what it missed while something is removed; it may fail to hear of that. */
export function toldWhileRemoving(sets: Sets): Build {
  return (world) => {
    const volumes = volumesOf(world, ['a', 'b'], { a: RecordType.remove, b: RecordType.remove });
    let set: VolumeSet | undefined;
    let isRemoved = false;
    world.task('client', async () => {
      set = await setUp(sets, volumes, true);
      const opened = set;
      volumes[1]!.failsOnce = world.choose('b hears of it', [undefined, RecordType.remove]);
      world.task('planner', async () => void (await opened.settle(signal)));
      isRemoved = await removeAndCrash(sets, opened, volumes);
    });
    return { final: () => void (isRemoved && assertRemoved(set!)) };
  };
}

/** One volume is struck off for what it missed while another one is counted on again. */
export function struckWhileAdmitting(sets: Sets): Build {
  return (world) => {
    const volumes = volumesOf(world, ['a', 'b', 'c'], { c: RecordType.note });
    let set: VolumeSet | undefined;
    world.task('planner', async () => {
      set = await setUp(sets, volumes, true);
      const opened = set;
      world.task('client', async () => {
        if (!(await isDone(opened.membership.strike([volumes[1]!.id], signal)))) return;
        assert.ok(!opened.membership.roster.current.includes(volumes[1]!.id), 'who was struck off counts');
        const reopened = await openOver(sets, volumes);
        assert.ok(!reopened.member('b').isCurrent, 'who was struck off counts after a crash');
      });
      await isDone(opened.membership.admit(opened.member('c'), signal));
    });
    return {
      final: () => {
        assert.ok(!set!.member('b').isCurrent, 'one change undid the other');
        assertListed(set!);
      },
    };
  };
}

/** Two find at the same time that a volume missed something: each relies on that being known after a crash. */
export function struckTwice(sets: Sets): Build {
  return (world) => {
    const volumes = volumesOf(world, ['a', 'b'], { a: RecordType.note });
    world.task('first', async () => {
      const set = await setUp(sets, volumes, false);
      const strike = async (): Promise<void> => {
        await set.membership.strike([volumes[1]!.id], signal);
        const reopened = await openOver(sets, volumes);
        assert.ok(!reopened.member('b').isCurrent, 'who was struck off counts after a crash');
      };
      world.task('second', strike);
      await strike();
    });
    return {};
  };
}

/** A volume is lost and taken back, with what it held, while something is removed. */
export function takenBackWhileRemoving(sets: Sets): Build {
  return (world) => {
    const volumes = volumesOf(world, ['a', 'b'], { a: RecordType.remove, b: RecordType.remove });
    let set: VolumeSet | undefined;
    let isRemoved = false;
    world.task('client', async () => {
      set = await setUp(sets, volumes, false);
      const opened = set;
      world.task('watch', async () => {
        opened.life.lose('b', 'unplugged');
        await world.io('plugged in');
        opened.life.add({ volume: volumes[1]! });
        await opened.settle(signal);
      });
      isRemoved = await removeAndCrash(sets, opened, volumes);
    });
    return { final: () => void (isRemoved && assertRemoved(set!)) };
  };
}
