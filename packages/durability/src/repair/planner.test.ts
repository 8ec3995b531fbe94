import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { blake3 } from '@napi-rs/blake-hash';
import { encodeStripe, MemoryVolume, newVolumeId, RecordType, stripeId, type NewRecord } from '@ron/cas';
import { RonError } from '@ron/kernel';
import { Pacing } from './pacing.ts';
import { Planner } from './planner.ts';
import { repair } from './repair.ts';
import { RepairQueue } from './repair-queue.ts';
import { RepairWorker } from './repair-worker.ts';
import { Striper } from '../stripes/striper.ts';
import { Directories } from '../testing/directories.ts';
import { faulty, type Faulty } from '../testing/faulty-volume.ts';
import { VolumeSet, type VolumeSetInit } from '../set/volume-set.ts';

const { signal } = new AbortController();
const pacing = new Pacing({ rate_bytes_per_s: 1e9, burst_bytes: 1e6 });
const pace = (): Promise<void> => Promise.resolve();

function chunk(text: string): NewRecord {
  const payload = Buffer.from(text);
  return { type: RecordType.chunk, id: blake3(payload), payload };
}

const object = (text: string): NewRecord => ({ ...chunk(text), type: RecordType.object, meta: Buffer.from('a/b') });
const mark = (type: number, of: NewRecord): NewRecord => ({ type, id: of.id, payload: new Uint8Array(0) });
const RECORDS = Array.from({ length: 60 }, (_, index) =>
  index % 3 === 0 ? object(`o ${index}`) : chunk(`c ${index}`),
);

class Repairs {
  readonly set: VolumeSet;
  readonly queue: RepairQueue;
  readonly planner: Planner;
  readonly worker: RepairWorker;

  constructor(set: VolumeSet, capacity = 256) {
    this.set = set;
    this.queue = new RepairQueue({ capacity });
    this.planner = new Planner({ set, queue: this.queue });
    this.worker = new RepairWorker({ set, queue: this.queue, pacing });
  }

  /** Plans and repairs at the same time, once. */
  async round(): Promise<void> {
    const stop = new AbortController();
    const working = this.worker.run({ stopping: stop.signal, signal });
    await this.planner.plan(signal);
    while (!this.queue.isIdle) await new Promise((resolve) => void setImmediate(resolve));
    stop.abort();
    await working;
  }
}

async function open(count: number, init: Partial<VolumeSetInit> = {}): Promise<{ set: VolumeSet; volumes: Faulty[] }> {
  const volumes = Array.from({ length: count }, (_, index) => memory(`v${index}`));
  const members = volumes.map(({ volume }) => ({ volume }));
  const set = await VolumeSet.open({ members, replication_factor: 2, signal, ...init });
  for (const record of RECORDS) await set.put([record], signal);
  return { set, volumes };
}

const memory = (name: string): Faulty => faulty(new MemoryVolume({ name, bytes_max: 64 << 20 }));
const kindOf = (record: NewRecord): 'object' | 'content' => (record.type === RecordType.object ? 'object' : 'content');

function assertWhole(set: VolumeSet, copies: number, records: readonly NewRecord[] = RECORDS): void {
  for (const record of records) {
    const holders = set.members.filter((each) => each.isActive && each.holds(kindOf(record), record.id));
    assert.ok(holders.length >= copies, `${record.payload.length} has ${holders.length} copies`);
  }
}

suite('copies', () => {
  test('a set that is whole needs nothing', async () => {
    const { set } = await open(4);
    const { planner, queue } = new Repairs(set);
    const report = await planner.plan(signal);
    assert.equal(report.deficit, 0);
    assert.ok(report.isComplete && report.copies_min === 2);
    assert.equal(queue.depth, 0);
  });

  test('the records of a lost volume are copied, and count once the next walk has seen them', async () => {
    const { set } = await open(4);
    const repairs = new Repairs(set);
    set.lifecycle.lose('v1', 'test');
    await repairs.round();
    const { deficit, deficit_by_class } = repairs.planner.report;
    assert.ok(deficit > 10 && deficit_by_class.last === deficit, 'they were last copies');
    assertWhole(set, 2);
    assert.equal(repairs.planner.report.deficit, deficit, 'not confirmed yet');
    await repairs.round();
    assert.equal(repairs.planner.report.deficit, 0);
    assert.equal(repairs.worker.repaired_total, deficit);
  });

  test('with three copies the loss of one is no emergency', async () => {
    const { set } = await open(5, { replication_factor: 3 });
    set.lifecycle.lose('v1', 'test');
    const { planner } = new Repairs(set);
    const { deficit_by_class } = await planner.plan(signal);
    assert.ok(deficit_by_class.rf > 10 && deficit_by_class.last === 0);
  });

  test('a small queue is filled again and again in one plan', async () => {
    const { set } = await open(4, { replication_factor: 3, write_min: 2 });
    const repairs = new Repairs(set, 2);
    set.lifecycle.lose('v1', 'test');
    await repairs.round();
    assertWhole(set, 3);
    assert.equal(repairs.queue.skipped_total, 0);
  });

  test('with fewer volumes than copies, one copy on each is enough', async () => {
    const { set } = await open(2);
    set.lifecycle.lose('v1', 'test');
    const { planner } = new Repairs(set);
    assert.equal((await planner.plan(signal)).deficit, 0);
  });

  test('a volume that replaces a lost one gets its records', async () => {
    const { set } = await open(2);
    set.lifecycle.lose('v1', 'test');
    await set.lifecycle.remove('v1', { signal });
    set.lifecycle.add({ volume: memory('v2').volume });
    const repairs = new Repairs(set);
    await repairs.round();
    assertWhole(set, 2);
    await repairs.round();
    assert.equal(repairs.planner.report.deficit, 0);
  });

  test('a draining volume may be removed once a walk has seen its records elsewhere', async () => {
    const { set } = await open(4, { replication_factor: 1 });
    const repairs = new Repairs(set);
    await set.lifecycle.drain('v2', signal);
    await repairs.round();
    assert.ok(!set.member('v2').isDrained);
    await repairs.round();
    assert.ok(set.member('v2').isDrained);
    await set.lifecycle.remove('v2', { signal });
    assertWhole(set, 1);
  });

  test('a volume is not found drained by a plan that began before its drain', async () => {
    const { set, volumes } = await open(3);
    const { planner } = new Repairs(set);
    const { inner } = volumes[0]!;
    const listIds = inner.listIds.bind(inner);
    inner.listIds = async (kind, ...args) => {
      if (kind === 'object') set.lifecycle.beginDrain('v0');
      return await listIds(kind, ...args);
    };
    await planner.plan(signal);
    assert.equal(set.member('v0').status, 'draining');
    assert.ok(!set.member('v0').isDrained, 'contents were counted as staying there');
  });

  test('volumes are not found empty while fewer are left than there are to be copies', async () => {
    const { set } = await open(2);
    const repairs = new Repairs(set);
    for (const name of ['v0', 'v1']) set.lifecycle.beginDrain(name);
    await repairs.round();
    assert.ok(!set.members.some((member) => member.isDrained));
    await assert.rejects(set.lifecycle.remove('v0', { signal }), /drain it first/);
    set.lifecycle.add({ volume: memory('v2').volume });
    for (let round = 0; round < 2; round++) await repairs.round();
    assert.ok(!set.members.some((member) => member.isDrained), 'one copy is not two');
    set.lifecycle.add({ volume: memory('v3').volume });
    for (let round = 0; round < 2; round++) await repairs.round();
    for (const name of ['v0', 'v1']) assert.ok(set.member(name).isDrained);
  });

  test('a volume is not found empty while a record is on its way there', async () => {
    const { set, volumes } = await open(2, { replication_factor: 1 });
    const repairs = new Repairs(set);
    const late = Array.from({ length: 50 }, (_, index) => chunk(`late ${index}`)).find(
      ({ id }) => set.placement.order(id)[0]!.name === 'v0',
    )!;
    const gate = Promise.withResolvers<void>();
    volumes[0]!.delay = () => gate.promise;
    const putting = set.put([late], signal);
    volumes[0]!.delay = undefined;
    await set.lifecycle.drain('v0', signal);
    for (let round = 0; round < 2; round++) await repairs.round();
    assert.ok(!set.member('v0').isDrained);
    gate.resolve();
    await putting;
    assert.deepEqual(set.holdersOf('content', late.id), [set.member('v0')], 'acknowledged, and nowhere else');
    for (let round = 0; round < 2; round++) await repairs.round();
    assert.ok(set.member('v0').isDrained && set.member('v1').holds('content', late.id));
  });

  test('a volume that was found empty is not when another one is lost, or cannot give a record', async () => {
    const { set, volumes } = await open(4, { replication_factor: 1 });
    const repairs = new Repairs(set);
    await set.lifecycle.drain('v2', signal);
    const empty = async (): Promise<void> => {
      for (let round = 0; round < 2; round++) await repairs.round();
      assert.ok(set.member('v2').isDrained);
    };
    await empty();
    set.lifecycle.lose('v1', 'test');
    assert.ok(!set.member('v2').isDrained, 'what moved there is only here again');
    for (let round = 0; round < 2; round++) await repairs.round();
    assert.ok(!set.member('v2').isDrained, 'a volume that is away may need its records');
    await set.lifecycle.setAbandoned('v1', true, signal);
    await empty();
    const record = RECORDS.find(({ id }) => set.holdersOf('content', id)[0]?.name === 'v3')!;
    volumes[3]!.fail('get', () => new RonError('integrity', 'damaged'));
    await set.get('content', record.id, signal).catch(() => undefined);
    assert.ok(!set.member('v2').isDrained);
  });

  test('an object that is put again is also put elsewhere while a volume with its removal drains', async () => {
    using directories = new Directories();
    await using set = await directories.open(['a'], { replication_factor: 1 });
    await set.put([object('x')], signal);
    await set.put([mark(RecordType.remove, object('x'))], signal);
    set.lifecycle.add({ volume: await directories.volume('b') });
    await set.reconcileStale(signal);
    await set.lifecycle.drain('a', signal);
    await set.put([object('x')], signal);
    assert.ok(set.member('b').holdsDurably('object', object('x').id), 'the other one is on its way out');
    assert.ok(!set.member('a').volume.wasRemoved(object('x').id));
  });

  test('copies in one domain are spread when there is another', async () => {
    using directories = new Directories();
    const [a, b] = [await directories.volume('a', { domain: 'x' }), await directories.volume('b', { domain: 'x' })];
    await using set = await VolumeSet.open({ members: [{ volume: a }, { volume: b }], replication_factor: 2, signal });
    await set.put(RECORDS, signal);
    set.lifecycle.add({ volume: await directories.volume('c', { domain: 'y' }) });
    const repairs = new Repairs(set);
    await repairs.round();
    await repairs.round();
    assert.equal(repairs.planner.report.deficit, 0);
    for (const record of RECORDS) assert.ok(set.member('c').holds(kindOf(record), record.id));
  });

  test('a removed object is not repaired, unless its content is a chunk of another', async () => {
    const { set } = await open(4);
    set.lifecycle.lose('v1', 'test');
    for (const record of RECORDS) {
      if (record.type === RecordType.object) await set.put([mark(RecordType.remove, record)], signal);
    }
    const repairs = new Repairs(set);
    await repairs.round();
    for (const record of RECORDS) {
      if (record.type === RecordType.object) assert.ok(!set.has('object', record.id));
      assert.equal(set.copiesOf('content', record.id), 2);
    }
    await repairs.round();
    assert.equal(repairs.planner.report.deficit, 0);
  });

  test('of a part of a manifest all copies stay when room is given back, wherever they lie', async () => {
    const { set } = await open(6, { replication_factor: 1, lone_copies: 3 });
    const page = { ...chunk('page'), type: RecordType.page };
    const order = set.placement.order(page.id);
    for (const member of [order[0]!, order[4]!, order[5]!]) await member.write([page], signal);
    await set.reclaim({ isNeeded: () => true, live_ratio: 1.1, seal_bytes_min: 0, pace, signal });
    assert.equal(set.copiesOf('content', page.id), 3);
  });

  test('a content that one has as a chunk and another as a part of a manifest has the copies of the latter', async () => {
    const { set } = await open(6, { replication_factor: 1, lone_copies: 3 });
    const record = chunk('both');
    const [first, second] = set.members;
    await first!.write([record], signal);
    await second!.write([{ ...record, type: RecordType.page }], signal);
    const repairs = new Repairs(set);
    for (let round = 0; round < 2; round++) await repairs.round();
    assert.equal(set.copiesOf('content', record.id), 3);
    assert.equal(repairs.planner.report.deficit, 0);
  });

  test('a volume that cannot be listed makes the plan incomplete, and the last full one stands', async () => {
    const { set, volumes } = await open(4);
    const { planner } = new Repairs(set);
    await planner.plan(signal);
    volumes[2]!.fail('listIds', () => new RonError('not_ready', 'broken'));
    const report = await planner.plan(signal);
    assert.deepEqual([report.isComplete, report.unreadable], [false, ['v2']]);
    assert.ok(planner.report.isComplete);
  });
});

test('a read that fails is repaired at once, and a copy that cannot be read does not count', async () => {
  const { set, volumes } = await open(4);
  const repairs = new Repairs(set);
  const record = RECORDS[1]!;
  const [first] = set.holdersOf('content', record.id);
  const broken = volumes.find(({ volume }) => volume.name === first!.name)!;
  broken.fail('get', () => new Error('EIO'));
  repairs.planner.file({ kind: 'content', id: record.id, volume: broken.volume.id, reason: 'EIO' });
  assert.equal(repairs.queue.depth, 1);
  await repairs.worker.work((await repairs.queue.take(signal))!, signal);
  assert.equal(set.copiesOf('content', record.id), 3);
});

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

  test('lost shards are made again on volumes without one, and survive the next loss', async () => {
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

  test('a shard that lies where another one of its stripe lies moves, before both are lost together', async () => {
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

  test('two repairs of one stripe at the same time take different volumes', async () => {
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

  test('last copies are filed before the shards of many stripes are looked at', async () => {
    const { set, ids } = await openStriped(12);
    const layout = (await set.stripes.find(ids[0]!, signal))!;
    // A parity shard is elsewhere than it is to be: that takes the only place in the queue.
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
    for (let taken = 0; taken < 20; taken++) {
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
