/** Plans and repairs of stripes. */
import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { encodeStripe, newVolumeId, RecordType, stripeId } from '@ron/cas';
import { Planner } from './planner.ts';
import { repair } from './repair.ts';
import { RepairQueue } from './repair-queue.ts';
import { Striper } from '../stripes/striper.ts';
import type { Faulty } from '../testing/faulty-volume.ts';
import { assertWhole, chunk, memory, open, pace, RECORDS, Repairs } from '../testing/repairs.ts';
import type { VolumeSet } from '../set/volume-set.ts';

const { signal } = new AbortController();

suite('stripes', () => {
  async function openStriped(count: number): Promise<{ set: VolumeSet; volumes: Faulty[]; ids: Uint8Array[] }> {
    const opened = await open(count, { replication_factor: 2, lone_copies: 4 });
    const records = Array.from({ length: 6 }, (_, index) => chunk(`stripe ${index} ${'x'.repeat(100)}`));
    for (const record of records) await opened.set.put([record], signal);
    const ids = records.map((record) => record.id);
    await new Striper({ set: opened.set, pace }).make(ids, signal);
    const init = { isNeeded: isAnything, live_ratio: 1.1, seal_bytes_min: 0, pace, signal };
    await opened.set.reclaim(init);
    return { ...opened, ids };
  }

  const isAnything = (): boolean => true;

  test('lost shards are rebuilt on volumes without one, and survive the next loss', async () => {
    const { set, ids } = await openStriped(12);
    const repairs = new Repairs(set);
    const layout = (await set.stripes.find(ids[0]!, signal))!;
    // Twice as many as the stripe can lose at once.
    for (const wave of [layout.shards.slice(0, 3), layout.shards.slice(4, 7)]) {
      for (const shard of wave) set.lifecycle.lose(shard.home, 'test');
      await repairs.round();
      await repairs.round();
      assert.equal(repairs.planner.report.deficit, 0);
      const found = (await set.stripes.find(ids[0]!, signal))!;
      for (const shard of found.shards) assert.ok(set.member(shard.home).holdsDurably('content', shard.id));
      for (const shard of wave) await set.lifecycle.remove(shard.home, { signal });
      for (const name of ['x', 'y', 'z']) set.lifecycle.add({ volume: memory(`${name} ${wave[0]!.home}`).volume });
    }
    for (const id of ids) assert.ok(await set.get('content', id, signal));
  });

  test('missing data comes before missing parity', async () => {
    const { set, ids } = await openStriped(12);
    const layout = (await set.stripes.find(ids[0]!, signal))!;
    for (const index of [2, 7]) set.lifecycle.lose(layout.shards[index]!.home, 'test');
    const { planner } = new Repairs(set);
    const { deficit_by_class } = await planner.plan(signal);
    assert.equal(deficit_by_class.parity, 1);
    assert.ok(deficit_by_class.last >= 1);
  });

  test('with too many lost shards is dissolved, and its remaining contents are copied', async () => {
    const { set, ids } = await openStriped(12);
    const layout = (await set.stripes.find(ids[0]!, signal))!;
    for (const shard of layout.shards.slice(0, 4)) set.lifecycle.lose(shard.home, 'test');
    const repairs = new Repairs(set);
    await repairs.round();
    await repairs.round();
    for (const id of ids.slice(4)) assert.equal(set.copiesOf('content', id), 2);
    assert.ok(repairs.planner.report.deficit > 0, 'it is not given up while a volume could come back');
    for (const shard of layout.shards.slice(0, 4)) await set.lifecycle.remove(shard.home, { signal });
    for (let round = 0; round < 3; round++) await repairs.round();
    assert.equal(repairs.planner.report.deficit, 0);
    assert.deepEqual(await set.inventory('stripe', undefined, 10), []);
  });

  test('a shard that shares a volume with another one of its stripe moves', async () => {
    const opened = await open(9);
    const records = Array.from({ length: 6 }, (_, index) => chunk(`stripe ${index} ${'x'.repeat(100)}`));
    for (const record of records) await opened.set.put([record], signal);
    const layout = await new Striper({ set: opened.set, pace }).make(
      records.map((record) => record.id),
      signal,
    );
    const { set } = opened;
    // Copies exist: the shard in its place is lost, and its copies share a volume with other shards.
    const [gone] = layout.shards;
    set.lifecycle.lose(gone!.home, 'test');
    await set.lifecycle.remove(gone!.home, { signal });
    set.lifecycle.add({ volume: memory('fresh').volume });
    const repairs = new Repairs(set);
    for (let round = 0; round < 2; round++) await repairs.round();
    assert.equal(repairs.planner.report.deficit, 0);
    const found = (await set.stripes.find(gone!.id, signal))!;
    assert.equal(new Set(found.shards.map((shard) => shard.home)).size, 9);
    for (const { id, home } of found.shards) assert.ok(set.member(home).holdsDurably('content', id));
  });

  test('shards that have to share a volume are reported, and move when there is room', async () => {
    const { set, ids } = await openStriped(9);
    const layout = (await set.stripes.find(ids[0]!, signal))!;
    const repairs = new Repairs(set);
    const lost = [1, 5, 7].map((index) => layout.shards[index]!.home);
    for (const name of lost) set.lifecycle.lose(name, 'test');
    for (let round = 0; round < 3; round++) await repairs.round();
    assert.deepEqual([repairs.planner.report.deficit, repairs.planner.report.crowded], [0, 3]);
    const shared = (await set.stripes.find(ids[0]!, signal))!;
    const on = (name: string): number => shared.shards.filter((shard) => shard.home === name).length;
    assert.ok(
      shared.shards.every((shard) => on(shard.home) <= 2),
      'more on one than has to be',
    );
    for (const [at, name] of lost.entries()) {
      await set.lifecycle.remove(name, { signal });
      set.lifecycle.add({ volume: memory(`new ${at}`).volume });
      for (let round = 0; round < 2; round++) await repairs.round();
      const { deficit, crowded } = repairs.planner.report;
      assert.deepEqual([deficit, crowded], [0, 2 - at]);
    }
    const { shards } = (await set.stripes.find(ids[0]!, signal))!;
    assert.equal(new Set(shards.map((shard) => shard.home)).size, 9);
    await set.reclaim({ isNeeded: isAnything, live_ratio: 1.1, seal_bytes_min: 0, pace, signal });
    for (const { id, home } of shards) {
      assert.deepEqual(
        set.holdersOf('content', id).map((member) => member.id),
        [home],
      );
    }
  });

  test('shards that share a volume move even if only a full volume recovers', async () => {
    const { set, volumes, ids } = await openStriped(10);
    const layout = (await set.stripes.find(ids[0]!, signal))!;
    const spare = volumes.find(({ volume }) => layout.shards.every((shard) => shard.home !== volume.id))!;
    const takes = (isTaking: boolean): void => {
      Object.defineProperty(set.member(spare.volume.name), 'takesRecords', { get: () => isTaking, configurable: true });
    };
    takes(false);
    set.lifecycle.lose(layout.shards[2]!.home, 'test');
    const repairs = new Repairs(set);
    for (let round = 0; round < 3; round++) await repairs.round();
    assert.equal(repairs.planner.report.crowded, 1);
    takes(true);
    for (let round = 0; round < 2; round++) await repairs.round();
    assert.deepEqual([repairs.planner.report.crowded, repairs.planner.report.deficit], [0, 0]);
  });

  test('two concurrent repairs of one stripe take different volumes', async () => {
    const { set, ids } = await openStriped(12);
    const layout = (await set.stripes.find(ids[0]!, signal))!;
    const lost = layout.shards.slice(0, 3);
    for (const shard of lost) set.lifecycle.lose(shard.home, 'test');
    const init = { set, pace, withVolumeTimeout: <T>(work: Promise<T>) => work };
    const jobs = lost.map(({ id }) => ({ kind: 'shard', id, class: 'last' }) as const);
    const results = await Promise.all(jobs.map((job) => repair(init, job, signal)));
    assert.deepEqual(results, ['repaired', 'repaired', 'repaired']);
    const { shards } = (await set.stripes.find(ids[0]!, signal))!;
    assert.equal(new Set(shards.map((shard) => shard.home)).size, 9);
    for (const { id, home } of shards) assert.ok(set.member(home).holdsDurably('content', id));
  });

  test('a stripe that a volume with parity has not recorded, or recorded otherwise, is written there', async () => {
    const { set, ids } = await openStriped(9);
    const layout = (await set.stripes.find(ids[0]!, signal))!;
    const id = stripeId(layout.shards);
    const repairs = new Repairs(set);
    await repairs.round();
    assert.equal(repairs.planner.report.deficit, 0);
    const [first, second] = layout.shards.slice(6).map((shard) => set.member(shard.home));
    await first!.write([{ type: RecordType.unstripe, id, payload: encodeStripe(layout) }], signal);
    await repairs.round();
    assert.equal(repairs.planner.report.deficit_by_class.rf, 1, 'even if no volume was added or lost');
    assert.ok(first!.holdsDurably('stripe', id));
    const shards = layout.shards.map((shard, at) => (at === 0 ? { ...shard, home: newVolumeId() } : shard));
    await second!.write([{ type: RecordType.stripe, id, payload: encodeStripe({ ...layout, shards }) }], signal);
    set.lifecycle.add({ volume: memory('new').volume });
    for (let round = 0; round < 2; round++) await repairs.round();
    assert.equal(repairs.planner.report.deficit, 0);
    for (const view of (await set.stripes.views(id, signal)).values()) assert.deepEqual(view, layout);
  });

  test('last copies are filed before the shards of stripes are examined', async () => {
    const { set, ids } = await openStriped(12);
    const layout = (await set.stripes.find(ids[0]!, signal))!;
    // A parity shard is out of place: its repair takes the only slot of the queue.
    const { id, home } = layout.shards[8]!;
    const elsewhere = set.members.find((member) => layout.shards.every((shard) => shard.home !== member.id))!;
    await elsewhere.write([{ ...(await set.get('content', id, signal))!, id }], signal);
    set.lifecycle.lose(home, 'test');
    const alone = chunk('alone');
    await elsewhere.write([alone], signal);
    const queue = new RepairQueue({ capacity: 1 });
    const control = new AbortController();
    const planning = new Planner({ set, queue }).plan(control.signal);
    const classes: string[] = [];
    for (let taken = 0; taken < 4 * RECORDS.length; taken++) {
      const job = (await queue.take(signal))!;
      classes.push(job.class);
      queue.done(job);
      if (job.class === 'parity') break;
    }
    control.abort();
    await planning.catch(() => undefined);
    assert.deepEqual(
      classes.filter((each, at) => each !== classes[at - 1]),
      ['last', 'rf', 'parity'],
    );
  });

  test('a volume whose stripes cannot be listed makes the plan incomplete, and others are repaired', async () => {
    const { set, volumes } = await openStriped(12);
    const repairs = new Repairs(set);
    const broken = volumes[3]!;
    const { inner } = broken;
    const listIds = inner.listIds.bind(inner);
    inner.listIds = (kind, after, into) =>
      kind === 'stripe' ? Promise.reject(new Error('EIO')) : listIds(kind, after, into);
    set.lifecycle.lose('v1', 'test');
    for (let round = 0; round < 2; round++) await repairs.round();
    assert.deepEqual((await repairs.planner.plan(signal)).unreadable, ['v3']);
    assertWhole(set, 2);
  });

  test('a volume with shards can be drained', async () => {
    const { set, ids } = await openStriped(10);
    const layout = (await set.stripes.find(ids[0]!, signal))!;
    const repairs = new Repairs(set);
    for (const index of [1, 8]) {
      const { home } = layout.shards[index]!;
      await set.lifecycle.drain(home, signal);
      await repairs.round();
      await repairs.round();
      assert.ok(set.member(home).isDrained);
      await set.lifecycle.remove(home, { signal });
      for (const id of ids) assert.ok(await set.get('content', id, signal));
    }
  });
});
