import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { RecordType } from '@ron/cas';
import { RonError } from '@ron/kernel';
import { Directories } from '../testing/directories.ts';
import { assertWhole, chunk, kindOf, mark, memory, open, pace, RECORDS, Repairs } from '../testing/repairs.ts';
import { VolumeSet } from '../set/volume-set.ts';

const { signal } = new AbortController();

suite('copies', () => {
  test('a complete set needs no repair', async () => {
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

  test('with three copies the loss of one is not urgent', async () => {
    const { set } = await open(5, { replication_factor: 3 });
    set.lifecycle.lose('v1', 'test');
    const { planner } = new Repairs(set);
    const { deficit_by_class } = await planner.plan(signal);
    assert.ok(deficit_by_class.rf > 10 && deficit_by_class.last === 0);
  });

  test('a small queue is refilled during one plan', async () => {
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

  test('a compaction keeps all copies of a part of a manifest, on any volume', async () => {
    const { set } = await open(6, { replication_factor: 1, lone_copies: 3 });
    const page = { ...chunk('page'), type: RecordType.page };
    const order = set.placement.order(page.id);
    for (const member of [order[0]!, order[4]!, order[5]!]) await member.write([page], signal);
    await set.reclaim({ isNeeded: () => true, live_ratio: 1.1, seal_bytes_min: 0, pace, signal });
    assert.equal(set.copiesOf('content', page.id), 3);
  });

  test('a content that is a chunk on one volume and a part of a manifest on another has the copies of the latter', async () => {
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

  test('a volume that cannot be listed makes the plan incomplete, and the last complete report stays', async () => {
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
