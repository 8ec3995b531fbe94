/**
 * Models of volumes that join, are lost and miss decisions during a removal, on the real set, with volumes whose operations end
 * when the explorer says so. A removed object stays removed, every current volume has the removal, and a crash right after the
 * acknowledgement does not change that: a set that is opened again over the same volumes agrees.
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

/** Only the operations under test are slow: others would multiply the schedules. */
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

/** False when it was refused with `not_ready`. */
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
 * Removes the object, and returns whether that was acknowledged; it may be refused. A crash would leave exactly the records that
 * are on the disks at that moment.
 */
async function removeAndCrash(sets: Sets, set: VolumeSet, volumes: readonly ModelVolume[]): Promise<boolean> {
  if (!(await isDone(set.put([REMOVAL], signal)))) return false;
  assert.ok(!set.has('object', OBJECT.id), 'the removal was acknowledged, and the object is still visible');
  const reopened = await openOver(sets, volumes);
  assert.ok(!reopened.has('object', OBJECT.id), 'a crash restored the removed object');
  return true;
}

function assertRemoved(set: VolumeSet): void {
  assert.ok(!set.has('object', OBJECT.id), 'a removed object came back');
  for (const { name, isCurrent, volume } of set.members) {
    if (isCurrent) assert.ok(!volume.has('object', OBJECT.id), `${name} is current, and missed the removal`);
  }
  assertListed(set);
}

function assertListed(set: VolumeSet): void {
  const { current } = set.membership.roster;
  const counted = set.members.filter((member) => member.isCurrent).map((member) => member.id);
  assert.deepEqual(current.toSorted(), counted.toSorted(), 'the roster differs from the members');
}

/** A stale volume is reconciled during a removal, and may fail to write the removal. */
export function reconciledWhileRemoving(sets: Sets): Build {
  return (world) => {
    const volumes = volumesOf(world, ['a', 'b'], { a: RecordType.remove, b: RecordType.remove });
    let set: VolumeSet | undefined;
    let isRemoved = false;
    world.task('client', async () => {
      set = await setUp(sets, volumes, true);
      const opened = set;
      volumes[1]!.failsOnce = world.choose('b fails', [undefined, RecordType.remove]);
      world.task('planner', async () => void (await opened.reconcileStale(signal)));
      isRemoved = await removeAndCrash(sets, opened, volumes);
    });
    return { final: () => void (isRemoved && assertRemoved(set!)) };
  };
}

/** One volume is struck off while another one is admitted. */
export function struckWhileAdmitting(sets: Sets): Build {
  return (world) => {
    const volumes = volumesOf(world, ['a', 'b', 'c'], { c: RecordType.note });
    let set: VolumeSet | undefined;
    world.task('planner', async () => {
      set = await setUp(sets, volumes, true);
      const opened = set;
      world.task('client', async () => {
        if (!(await isDone(opened.membership.strike([volumes[1]!.id], signal)))) return;
        assert.ok(!opened.membership.roster.current.includes(volumes[1]!.id), 'the struck-off volume counts');
        const reopened = await openOver(sets, volumes);
        assert.ok(!reopened.member('b').isCurrent, 'the struck-off volume counts after a crash');
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

/** Two callers strike off the same volume concurrently: each relies on that being durable. */
export function struckTwice(sets: Sets): Build {
  return (world) => {
    const volumes = volumesOf(world, ['a', 'b'], { a: RecordType.note });
    world.task('first', async () => {
      const set = await setUp(sets, volumes, false);
      const strike = async (): Promise<void> => {
        await set.membership.strike([volumes[1]!.id], signal);
        const reopened = await openOver(sets, volumes);
        assert.ok(!reopened.member('b').isCurrent, 'the struck-off volume counts after a crash');
      };
      world.task('second', strike);
      await strike();
    });
    return {};
  };
}

/** A volume is lost and opened again, with its records, during a removal. */
export function reopenedWhileRemoving(sets: Sets): Build {
  return (world) => {
    const volumes = volumesOf(world, ['a', 'b'], { a: RecordType.remove, b: RecordType.remove });
    let set: VolumeSet | undefined;
    let isRemoved = false;
    world.task('client', async () => {
      set = await setUp(sets, volumes, false);
      const opened = set;
      world.task('watch', async () => {
        opened.lifecycle.lose('b', 'unplugged');
        await world.io('plugged in');
        opened.lifecycle.add({ volume: volumes[1]! });
        await opened.reconcileStale(signal);
      });
      isRemoved = await removeAndCrash(sets, opened, volumes);
    });
    return { final: () => void (isRemoved && assertRemoved(set!)) };
  };
}
