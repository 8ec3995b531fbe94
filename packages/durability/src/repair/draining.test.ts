/** When a plan finds a draining volume drained. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { RecordType } from '@ron/cas';
import { RonError } from '@ron/kernel';
import { Directories } from '../testing/directories.ts';
import { assertWhole, chunk, mark, memory, object, open, RECORDS, Repairs } from '../testing/repairs.ts';

const { signal } = new AbortController();

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

test('volumes are not found drained while fewer are left than copies', async () => {
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

test('a volume is not found drained while a record is written to it', async () => {
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

test('a drained volume is draining again when another one is lost, or fails to deliver a record', async () => {
  const { set, volumes } = await open(4, { replication_factor: 1 });
  const repairs = new Repairs(set);
  await set.lifecycle.drain('v2', signal);
  const empty = async (): Promise<void> => {
    for (let round = 0; round < 2; round++) await repairs.round();
    assert.ok(set.member('v2').isDrained);
  };
  await empty();
  set.lifecycle.lose('v1', 'test');
  assert.ok(!set.member('v2').isDrained, 'the records that moved there are only here again');
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
