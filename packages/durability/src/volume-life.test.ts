import assert from 'node:assert/strict';
import { test } from 'node:test';
import { blake3 } from '@napi-rs/blake-hash';
import { RecordType, type NewRecord } from '@ron/cas';
import { isRonError } from '@ron/kernel';
import { Directories } from './testing/directories.ts';

const { signal } = new AbortController();

function object(text: string): NewRecord {
  const payload = Buffer.from(text);
  return { type: RecordType.object, id: blake3(payload), payload, meta: Buffer.from('a/b') };
}

const mark = (type: number, of: NewRecord): NewRecord => ({ type, id: of.id, payload: new Uint8Array(0) });
const ALL = ['a', 'b', 'c'];
const RF3 = { replication_factor: 3, write_min: 2 };
const X = object('x');

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

test('what only a volume that was away has is there, and a pin that it missed is told', async () => {
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
  await set.settle(signal);
  assert.ok(set.has('object', object('alone').id));
  assert.ok(set.member('c').volume.isPinned(X.id));
});

test('a volume comes back while the set is in use', async () => {
  using directories = new Directories();
  await using set = await directories.open(ALL, RF3);
  await set.put([X], signal);
  await set.member('c').volume.close();
  set.lose('c', 'its directory is gone');
  assert.deepEqual(
    set.views.map((view) => view.condition),
    ['ok', 'ok', 'failed'],
  );
  assert.equal(set.views[2]!.reason, 'its directory is gone');
  await set.put([mark(RecordType.remove, X)], signal);
  set.add({ volume: await directories.volume('c') });
  assert.ok(!set.has('object', X.id));
  await set.settle(signal);
  assert.ok(set.member('c').volume.wasRemoved(X.id) && set.member('c').isCurrent);
  assert.throws(
    () => set.add({ volume: set.member('c').volume }),
    (error) => isRonError(error, 'conflict'),
  );
});

test('a volume that is drained gets nothing more, hears decisions, and may go only when it is empty', async () => {
  using directories = new Directories();
  await using set = await directories.open(ALL, { replication_factor: 1 });
  const records = Array.from({ length: 20 }, (_, index) => object(`${index}`));
  await set.put(records.slice(0, 10), signal);
  set.drain('a');
  const before = (await set.member('a').volume.inventory('object', undefined, 100)).length;
  await set.put(records.slice(10), signal);
  assert.equal((await set.member('a').volume.inventory('object', undefined, 100)).length, before);
  await set.put([mark(RecordType.remove, records[0]!)], signal);
  assert.ok(set.members.every((member) => member.volume.wasRemoved(records[0]!.id)));
  await assert.rejects(set.remove('a'), (error) => isRonError(error, 'conflict'));
  set.member('a').isDrained = true;
  await set.remove('a');
  assert.deepEqual(
    set.members.map((member) => member.name),
    ['b', 'c'],
  );
});
