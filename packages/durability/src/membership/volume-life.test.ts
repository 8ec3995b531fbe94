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
  set.membership.roster[list].map((id) => set.membership.placeOf(id));

test('a volume that was away does not bring back what was removed meanwhile, also after restarts', async () => {
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
    assert.equal(await set.settle(signal), 1);
    assert.ok(set.member('c').isCurrent && set.member('c').volume.wasRemoved(X.id));
    assert.ok(set.has('object', object('y').id));
  }
  await using set = await directories.open(['c'], { ...RF3, replication_factor: 2 });
  assert.ok(!set.has('object', X.id), 'it was told');
});

test('a volume that was away while something was removed and put again does not say that it is gone', async () => {
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
  await set.settle(signal);
  assert.ok(set.member('c').volume.has('object', X.id) && set.member('c').volume.isPinned(X.id));
});

test('what is put again is heard by every volume that says it was removed', async () => {
  using directories = new Directories();
  await using set = await directories.open(ALL, { replication_factor: 1 });
  await set.put([X], signal);
  await set.put([mark(RecordType.remove, X)], signal);
  await set.put([X], signal);
  assert.ok(set.members.every((member) => !member.volume.wasRemoved(X.id)));
});

test('volumes that were used apart are told of, and brought together when somebody says so', async () => {
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
  assert.equal(await set.settle(signal), 0);
  assert.ok(set.member('c').isApart && !set.member('c').isCurrent, 'each side went on without the other');
  set.member('c').isTakenIn = true;
  assert.equal(await set.settle(signal), 1);
  assert.ok(set.member('c').isCurrent && !set.member('c').isApart);
  assert.ok(set.has('object', object('alone').id));
  assert.ok(set.member('c').volume.isPinned(X.id));
});

test('a volume comes back while the set is in use', async () => {
  using directories = new Directories();
  await using set = await directories.open(ALL, RF3);
  await set.put([X], signal);
  await set.member('c').volume.close();
  set.life.lose('c', 'its directory is gone');
  assert.deepEqual(
    set.views.map((view) => view.condition),
    ['ok', 'ok', 'failed'],
  );
  assert.equal(set.views[2]!.reason, 'its directory is gone');
  await set.put([mark(RecordType.remove, X)], signal);
  set.life.add({ volume: await directories.volume('c') });
  assert.ok(!set.has('object', X.id));
  await set.settle(signal);
  assert.ok(set.member('c').volume.wasRemoved(X.id) && set.member('c').isCurrent);
  assert.throws(
    () => set.life.add({ volume: set.member('c').volume }),
    (error) => isRonError(error, 'conflict'),
  );
});

test('a volume that is drained gets nothing more, hears decisions, and may go only when it is empty', async () => {
  using directories = new Directories();
  await using set = await directories.open(ALL, { replication_factor: 1 });
  const records = Array.from({ length: 20 }, (_, index) => object(`${index}`));
  await set.put(records.slice(0, 10), signal);
  await set.life.drain('a', signal);
  const before = (await set.member('a').volume.inventory('object', undefined, 100)).length;
  await set.put(records.slice(10), signal);
  assert.equal((await set.member('a').volume.inventory('object', undefined, 100)).length, before);
  await set.put([mark(RecordType.remove, records[0]!)], signal);
  assert.ok(set.members.every((member) => member.volume.wasRemoved(records[0]!.id)));
  await assert.rejects(set.life.remove('a', { signal }), (error) => isRonError(error, 'conflict'));
  set.member('a').isDrained = true;
  await set.life.remove('a', { signal });
  assert.deepEqual(
    set.members.map((member) => member.name),
    ['b', 'c'],
  );
});

test('who never heard of a removal has missed nothing when the object is put again', async () => {
  using directories = new Directories();
  {
    await using set = await directories.open(['a'], { replication_factor: 1 });
    await set.put([X], signal);
    await set.put([mark(RecordType.remove, X)], signal);
    for (const name of ['b', 'c']) set.life.add({ volume: await directories.volume(name) });
    await set.settle(signal);
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

test('a volume that is put back from a backup brings back neither what was removed since, nor pins', async () => {
  using directories = new Directories();
  await putBackOld(directories, 'c');
  {
    await using set = await directories.open(ALL, RF3);
    assert.ok(set.member('c').volume.has('object', X.id), 'it still has it');
    assert.ok(!set.member('c').isCurrent);
    assert.ok(!set.has('object', X.id) && !set.isPinned(object('y').id));
    assert.equal(await set.settle(signal), 1);
    assert.ok(set.member('c').isCurrent && !set.member('c').isApart && set.member('c').volume.wasRemoved(X.id));
  }
  await using set = await directories.open(ALL, RF3);
  assert.ok(set.members.every((member) => member.isCurrent));
  assert.ok(!set.has('object', X.id) && !set.isPinned(object('y').id) && set.has('object', object('y').id));
});

test('a volume is told nothing while those who would know are away', async () => {
  using directories = new Directories();
  await putBackOld(directories, 'c');
  {
    await using set = await directories.open(ALL, RF3);
    for (const name of ['a', 'b']) {
      await set.member(name).volume.close();
      set.life.lose(name, 'unplugged');
    }
    assert.equal(await set.settle(signal), 0);
    assert.ok(!set.member('c').isCurrent);
  }
  await using set = await directories.open(ALL, RF3);
  assert.ok(!set.has('object', X.id), 'the removal holds');
});

test('when those who know more come late, what they know counts', async () => {
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
    assert.ok(set.has('object', X.id), 'nobody is here who knows better');
    await assert.rejects(set.put([mark(RecordType.pin, X)], signal), 'too few volumes are here');
    for (const name of ['a', 'b']) set.life.add({ volume: await directories.volume(name) });
    await set.settle(signal);
    assert.ok(!set.has('object', X.id), 'the removal holds');
    assert.ok(set.members.every((member) => !member.isApart));
    await set.settle(signal);
    assert.ok(set.members.every((member) => member.isCurrent));
    assert.ok(set.member('c').volume.wasRemoved(X.id) && set.has('object', object('y').id));
  }
  await using set = await directories.open(ALL, RF3);
  assert.ok(set.members.every((member) => member.isCurrent));
  assert.ok(!set.has('object', X.id));
});

test('what was stored while those who know more were away is not taken for what they removed', async () => {
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
    for (const name of ['a', 'b']) set.life.add({ volume: await copies.volume(name) });
    if (!isAlone) await set.put([X], signal);
    await set.settle(signal);
    assert.ok(set.has('object', X.id));
    assert.ok(set.member('a').isApart, 'somebody has to decide');
  }
});

test('what was decided about volumes holds after a restart, and can be taken back', async () => {
  using directories = new Directories();
  {
    await using set = await directories.open(ALL, { replication_factor: 1 });
    await set.life.drain('a', signal);
    set.life.lose('b', 'it makes noise');
    await set.life.giveUp(set.member('b').id, true, signal);
  }
  {
    // One that was not told knows less, whatever it is.
    await using set = await directories.open(ALL, { replication_factor: 1 });
    assert.equal(set.member('a').life, 'draining');
    assert.deepEqual(set.placement.places.map((member) => member.name).toSorted(), ['b', 'c']);
    assert.deepEqual(namesOf(set, 'lost'), ['b']);
    await set.life.undrain('a', signal);
    await set.life.giveUp(set.member('b').id, false, signal);
  }
  {
    await using set = await directories.open(ALL, { replication_factor: 1 });
    assert.equal(set.member('a').life, 'active');
    assert.deepEqual(namesOf(set, 'lost'), []);
    assert.deepEqual(namesOf(set, 'members'), ALL);
    await set.life.remove('a', { force: true, signal });
  }
  await using set = await directories.open(['b', 'c'], { replication_factor: 1 });
  assert.deepEqual(namesOf(set, 'members'), ['b', 'c']);
  assert.deepEqual(set.membership.absent(), []);
});

test('a volume is given up by its name too, and an unknown name is refused', async () => {
  using directories = new Directories();
  await using set = await directories.open(ALL, { replication_factor: 1 });
  set.life.lose('b', 'test');
  assert.match(set.incomplete!, /b is away/);
  await set.life.giveUp('b', true, signal);
  assert.deepEqual(set.membership.roster.lost, [set.member('b').id]);
  assert.equal(set.incomplete, undefined);
  await assert.rejects(set.life.giveUp('d', true, signal), (error) => isRonError(error, 'not_found'));
  assert.deepEqual(namesOf(set, 'lost'), ['b']);
});

test('a volume is not emptied when too few others, or domains, would be left for the copies', async () => {
  using directories = new Directories();
  await using set = await directories.open(ALL, RF3);
  const isRefused = (error: unknown): boolean => isRonError(error, 'conflict') && /add one first/.test(error.message);
  await assert.rejects(set.life.drain('a', signal), isRefused);
  const domains = [
    { volume: await directories.volume('d', { domain: 'x' }) },
    { volume: await directories.volume('e', { domain: 'x' }) },
    { volume: await directories.volume('f', { domain: 'y' }) },
  ];
  await using spread = await VolumeSet.open({ members: domains, replication_factor: 2, signal });
  await assert.rejects(spread.life.drain('f', signal), /another domain first/);
  await spread.life.drain('e', signal);
  await assert.rejects(spread.life.drain('d', signal), isRefused);
  await assert.rejects(spread.life.remove('d', { signal }), /drain it first/);
  assert.equal(spread.member('d').life, 'active');
});

test('weight and domain can be changed while it is in use', async () => {
  using directories = new Directories();
  await using set = await directories.open(ALL, RF3);
  const before = set.life.changes_total;
  set.life.reshape('a', { weight: 5, domain: 'shelf' });
  assert.deepEqual([set.member('a').weight, set.member('a').domain], [5, 'shelf']);
  assert.equal(set.placement.domains, 3);
  set.life.reshape('b', { weight: 1, domain: 'shelf' });
  assert.equal(set.placement.domains, 2);
  set.life.reshape('b', { weight: 1, domain: 'shelf' });
  assert.equal(set.life.changes_total, before + 2, 'nothing has to be looked at again when nothing changed');
});
