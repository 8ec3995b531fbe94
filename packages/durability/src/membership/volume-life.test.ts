import assert from 'node:assert/strict';
import { cpSync, renameSync, rmSync } from 'node:fs';
import { test } from 'node:test';
import { blake3 } from '@napi-rs/blake-hash';
import { RecordType, type NewRecord } from '@ron/cas';
import { isRonError } from '@ron/kernel';
import { Directories } from '../testing/directories.ts';
import { VolumeSet } from '../set/volume-set.ts';

const { signal } = new AbortController();

function object(text: string): NewRecord {
  const payload = Buffer.from(text);
  return { type: RecordType.object, id: blake3(payload), payload, meta: Buffer.from('a/b') };
}

const mark = (type: number, of: NewRecord): NewRecord => ({ type, id: of.id, payload: new Uint8Array(0) });
const ALL = ['a', 'b', 'c'];
const RF3 = { replication_factor: 3, write_min: 2 };
const X = object('x');
/** Of a list of the roster. */
const namesOf = (set: VolumeSet, list: 'members' | 'lost'): string[] =>
  set.membership.roster[list].map((id) => set.membership.lastDirOf(id));

test('a volume that was absent does not restore objects removed meanwhile, even after restarts', async () => {
  using directories = new Directories();
  {
    await using set = await directories.open(ALL, RF3);
    await set.put([X, object('y')], signal);
  }
  {
    await using set = await directories.open(['a', 'b'], RF3);
    await set.put([mark(RecordType.remove, X)], signal);
  }
  {
    await using set = await directories.open(ALL, RF3);
    assert.ok(set.member('c').volume.has('object', X.id), 'it still has it');
    assert.ok(!set.member('c').isCurrent);
    assert.ok(!set.has('object', X.id));
    assert.equal(await set.get('object', X.id, signal), undefined);
    assert.equal((await set.inventory('object', undefined, 10)).length, 1);
    assert.equal(await set.reconcileStale(signal), 1);
    assert.ok(set.member('c').isCurrent && set.member('c').volume.wasRemoved(X.id));
    assert.ok(set.has('object', object('y').id));
  }
  await using set = await directories.open(['c'], { ...RF3, replication_factor: 2 });
  assert.ok(!set.has('object', X.id), 'it has the removal');
});

test('a volume that was absent during a removal and a new put does not report the object as removed', async () => {
  using directories = new Directories();
  {
    await using set = await directories.open(ALL, RF3);
    await set.put([X], signal);
    await set.put([mark(RecordType.remove, X)], signal);
  }
  {
    await using set = await directories.open(['a', 'b'], RF3);
    await set.put([X], signal);
    await set.put([mark(RecordType.pin, X)], signal);
  }
  await using set = await directories.open(ALL, RF3);
  assert.ok(set.member('c').volume.wasRemoved(X.id));
  assert.ok(set.has('object', X.id) && set.isPinned(X.id));
  await set.reconcileStale(signal);
  assert.ok(set.member('c').volume.has('object', X.id) && set.member('c').volume.isPinned(X.id));
});

test('a new put reaches every volume that recorded the removal', async () => {
  using directories = new Directories();
  await using set = await directories.open(ALL, { replication_factor: 1 });
  await set.put([X], signal);
  await set.put([mark(RecordType.remove, X)], signal);
  await set.put([X], signal);
  assert.ok(set.members.every((member) => !member.volume.wasRemoved(X.id)));
});

test('diverged volumes are reported, and reconciled once the operator adopts them', async () => {
  using directories = new Directories();
  {
    await using set = await directories.open(ALL, RF3);
    await set.put([X], signal);
  }
  {
    await using alone = await directories.open(['c'], { replication_factor: 1 });
    await alone.put([object('alone')], signal);
  }
  {
    await using set = await directories.open(['a', 'b'], RF3);
    await set.put([mark(RecordType.pin, X)], signal);
  }
  await using set = await directories.open(ALL, RF3);
  assert.ok(!set.member('c').isCurrent);
  assert.ok(set.has('object', object('alone').id));
  assert.equal(await set.reconcileStale(signal), 0);
  assert.ok(set.member('c').isDiverged && !set.member('c').isCurrent, 'each side went on without the other');
  set.member('c').apply({ type: 'adopt' });
  assert.equal(await set.reconcileStale(signal), 1);
  assert.ok(set.member('c').isCurrent && !set.member('c').isDiverged);
  assert.ok(set.has('object', object('alone').id));
  assert.ok(set.member('c').volume.isPinned(X.id));
});

test('a volume returns while the set is in use', async () => {
  using directories = new Directories();
  await using set = await directories.open(ALL, RF3);
  await set.put([X], signal);
  await set.member('c').volume.close();
  set.lifecycle.lose('c', 'its directory is gone');
  assert.deepEqual(
    set.views.map((view) => view.condition),
    ['ok', 'ok', 'failed'],
  );
  assert.equal(set.views[2]!.reason, 'its directory is gone');
  await set.put([mark(RecordType.remove, X)], signal);
  set.lifecycle.add({ volume: await directories.volume('c') });
  assert.ok(!set.has('object', X.id));
  await set.reconcileStale(signal);
  assert.ok(set.member('c').volume.wasRemoved(X.id) && set.member('c').isCurrent);
  assert.throws(
    () => set.lifecycle.add({ volume: set.member('c').volume }),
    (error) => isRonError(error, 'conflict'),
  );
});

test('a draining volume gets no records, gets decisions, and can be removed only once it is drained', async () => {
  using directories = new Directories();
  await using set = await directories.open(ALL, { replication_factor: 1 });
  const records = Array.from({ length: 20 }, (_, index) => object(`${index}`));
  await set.put(records.slice(0, 10), signal);
  await set.lifecycle.drain('a', signal);
  const before = (await set.member('a').volume.inventory('object', undefined, 100)).length;
  await set.put(records.slice(10), signal);
  assert.equal((await set.member('a').volume.inventory('object', undefined, 100)).length, before);
  await set.put([mark(RecordType.remove, records[0]!)], signal);
  assert.ok(set.members.every((member) => member.volume.wasRemoved(records[0]!.id)));
  await assert.rejects(set.lifecycle.remove('a', { signal }), (error) => isRonError(error, 'conflict'));
  set.member('a').apply({ type: 'emptied' });
  await set.lifecycle.remove('a', { signal });
  assert.deepEqual(
    set.members.map((member) => member.name),
    ['b', 'c'],
  );
});

test('a volume that joined after a removal has missed nothing when the object is put again', async () => {
  using directories = new Directories();
  {
    await using set = await directories.open(['a'], { replication_factor: 1 });
    await set.put([X], signal);
    await set.put([mark(RecordType.remove, X)], signal);
    for (const name of ['b', 'c']) set.lifecycle.add({ volume: await directories.volume(name) });
    await set.reconcileStale(signal);
    await set.put([X], signal);
  }
  await using set = await directories.open(ALL, { replication_factor: 1 });
  assert.deepEqual(
    set.members.map((member) => member.isCurrent),
    [true, true, true],
  );
});

/** Removes X from all while a copy of `name` from before is kept, which is put back in its place. */
async function putBackOld(directories: Directories, name: string): Promise<void> {
  {
    await using set = await directories.open(ALL, RF3);
    await set.put([X, object('y')], signal);
    await set.put([mark(RecordType.pin, object('y'))], signal);
    cpSync(directories.dir(name), directories.dir('backup'), { recursive: true });
    await set.put([mark(RecordType.remove, X), mark(RecordType.unpin, object('y'))], signal);
  }
  rmSync(directories.dir(name), { recursive: true });
  renameSync(directories.dir('backup'), directories.dir(name));
}

test('a volume restored from a backup restores neither removed objects nor pins', async () => {
  using directories = new Directories();
  await putBackOld(directories, 'c');
  {
    await using set = await directories.open(ALL, RF3);
    assert.ok(set.member('c').volume.has('object', X.id), 'it still has it');
    assert.ok(!set.member('c').isCurrent);
    assert.ok(!set.has('object', X.id) && !set.isPinned(object('y').id));
    assert.equal(await set.reconcileStale(signal), 1);
    assert.ok(set.member('c').isCurrent && !set.member('c').isDiverged && set.member('c').volume.wasRemoved(X.id));
  }
  await using set = await directories.open(ALL, RF3);
  assert.ok(set.members.every((member) => member.isCurrent));
  assert.ok(!set.has('object', X.id) && !set.isPinned(object('y').id) && set.has('object', object('y').id));
});

test('a volume is not reconciled while all current volumes are absent', async () => {
  using directories = new Directories();
  await putBackOld(directories, 'c');
  {
    await using set = await directories.open(ALL, RF3);
    for (const name of ['a', 'b']) {
      await set.member(name).volume.close();
      set.lifecycle.lose(name, 'unplugged');
    }
    assert.equal(await set.reconcileStale(signal), 0);
    assert.ok(!set.member('c').isCurrent);
  }
  await using set = await directories.open(ALL, RF3);
  assert.ok(!set.has('object', X.id), 'the removal holds');
});

test('volumes with later decisions count even if they join late', async () => {
  using directories = new Directories();
  {
    await using set = await directories.open(ALL, RF3);
    await set.put([X, object('y')], signal);
  }
  {
    await using set = await directories.open(['a', 'b'], RF3);
    await set.put([mark(RecordType.remove, X)], signal);
  }
  {
    await using set = await directories.open(['c'], RF3);
    assert.ok(set.has('object', X.id), 'no volume with the removal is open');
    await assert.rejects(set.put([mark(RecordType.pin, X)], signal), 'too few volumes are here');
    for (const name of ['a', 'b']) set.lifecycle.add({ volume: await directories.volume(name) });
    await set.reconcileStale(signal);
    assert.ok(!set.has('object', X.id), 'the removal holds');
    assert.ok(set.members.every((member) => !member.isDiverged));
    await set.reconcileStale(signal);
    assert.ok(set.members.every((member) => member.isCurrent));
    assert.ok(set.member('c').volume.wasRemoved(X.id) && set.has('object', object('y').id));
  }
  await using set = await directories.open(ALL, RF3);
  assert.ok(set.members.every((member) => member.isCurrent));
  assert.ok(!set.has('object', X.id));
});

test('an object stored while volumes with later decisions were absent is not removed by them', async () => {
  using directories = new Directories();
  {
    await using set = await directories.open(ALL, RF3);
    await set.put([X], signal);
  }
  {
    await using set = await directories.open(['a', 'b'], RF3);
    await set.put([mark(RecordType.remove, X)], signal);
  }
  for (const isAlone of [true, false]) {
    using copies = new Directories();
    cpSync(directories.path, copies.path, { recursive: true });
    await using set = await copies.open(['c'], { ...RF3, replication_factor: 2, write_min: 1 });
    if (isAlone) await set.put([X], signal);
    for (const name of ['a', 'b']) set.lifecycle.add({ volume: await copies.volume(name) });
    if (!isAlone) await set.put([X], signal);
    await set.reconcileStale(signal);
    assert.ok(set.has('object', X.id));
    assert.ok(set.member('a').isDiverged, 'the operator has to decide');
  }
});

test('decisions about volumes hold after a restart, and can be revoked', async () => {
  using directories = new Directories();
  {
    await using set = await directories.open(ALL, { replication_factor: 1 });
    await set.lifecycle.drain('a', signal);
    set.lifecycle.lose('b', 'it makes noise');
    await set.lifecycle.setAbandoned(set.member('b').id, true, signal);
  }
  {
    // A volume that missed the decision does not decide.
    await using set = await directories.open(ALL, { replication_factor: 1 });
    assert.equal(set.member('a').status, 'draining');
    assert.deepEqual(set.placement.places.map((member) => member.name).toSorted(), ['b', 'c']);
    assert.deepEqual(namesOf(set, 'lost'), ['b']);
    await set.lifecycle.undrain('a', signal);
    await set.lifecycle.setAbandoned(set.member('b').id, false, signal);
  }
  {
    await using set = await directories.open(ALL, { replication_factor: 1 });
    assert.equal(set.member('a').status, 'active');
    assert.deepEqual(namesOf(set, 'lost'), []);
    assert.deepEqual(namesOf(set, 'members'), ALL);
    await set.lifecycle.remove('a', { force: true, signal });
  }
  await using set = await directories.open(['b', 'c'], { replication_factor: 1 });
  assert.deepEqual(namesOf(set, 'members'), ['b', 'c']);
  assert.deepEqual(set.membership.absent(), []);
});

test('a volume is abandoned by its name too, and an unknown name is refused', async () => {
  using directories = new Directories();
  await using set = await directories.open(ALL, { replication_factor: 1 });
  set.lifecycle.lose('b', 'test');
  assert.match(set.incomplete!, /b is away/);
  await set.lifecycle.setAbandoned('b', true, signal);
  assert.deepEqual(set.membership.roster.lost, [set.member('b').id]);
  assert.equal(set.incomplete, undefined);
  await assert.rejects(set.lifecycle.setAbandoned('d', true, signal), (error) => isRonError(error, 'not_found'));
  assert.deepEqual(namesOf(set, 'lost'), ['b']);
});

test('a volume is not drained when too few others, or domains, would be left for the copies', async () => {
  using directories = new Directories();
  await using set = await directories.open(ALL, RF3);
  const isRefused = (error: unknown): boolean => isRonError(error, 'conflict') && /add one first/.test(error.message);
  await assert.rejects(set.lifecycle.drain('a', signal), isRefused);
  const domains = [
    { volume: await directories.volume('d', { domain: 'x' }) },
    { volume: await directories.volume('e', { domain: 'x' }) },
    { volume: await directories.volume('f', { domain: 'y' }) },
  ];
  await using spread = await VolumeSet.open({ members: domains, replication_factor: 2, signal });
  await assert.rejects(spread.lifecycle.drain('f', signal), /another domain first/);
  await spread.lifecycle.drain('e', signal);
  await assert.rejects(spread.lifecycle.drain('d', signal), isRefused);
  await assert.rejects(spread.lifecycle.remove('d', { signal }), /drain it first/);
  assert.equal(spread.member('d').status, 'active');
});

test('weight and domain can be changed while it is in use', async () => {
  using directories = new Directories();
  await using set = await directories.open(ALL, RF3);
  const before = set.lifecycle.changes_total;
  set.lifecycle.reshape('a', { weight: 5, domain: 'shelf' });
  assert.deepEqual([set.member('a').weight, set.member('a').domain], [5, 'shelf']);
  assert.equal(set.placement.domains, 3);
  set.lifecycle.reshape('b', { weight: 1, domain: 'shelf' });
  assert.equal(set.placement.domains, 2);
  set.lifecycle.reshape('b', { weight: 1, domain: 'shelf' });
  assert.equal(set.lifecycle.changes_total, before + 2, 'nothing has to be looked at again when nothing changed');
});
