/** A directory that is deleted under a set: the very next write knows, and nothing counts a copy there. */
import assert from 'node:assert/strict';
import { renameSync, rmSync } from 'node:fs';
import { test } from 'node:test';
import { blake3 } from '@napi-rs/blake-hash';
import { ObjectStore, RecordType, type NewRecord } from '@ron/cas';
import { isRonError } from '@ron/kernel';
import { addressBytes } from '@ron/proto';
import { Directories } from '../testing/directories.ts';

const { signal } = new AbortController();

function object(text: string): NewRecord {
  const payload = Buffer.from(text);
  return { type: RecordType.object, id: blake3(payload), payload };
}

test('a write after a directory was deleted takes another volume, and the volume is lost at once', async () => {
  using directories = new Directories();
  const lost: string[] = [];
  const onLost = (name: string): void => void lost.push(name);
  await using set = await directories.open(['a', 'b', 'c'], { replication_factor: 2, onLost });
  rmSync(directories.dir('b'), { recursive: true });
  for (let key = 0; key < 20; key++) {
    const record = object(`object ${key}`);
    await set.put([record], signal);
    const copies = set.members.filter((member) => member.holdsDurably('object', record.id)).map(({ name }) => name);
    assert.deepEqual(copies, ['a', 'c']);
    assert.equal(set.copiesOf('object', record.id), 2);
  }
  assert.deepEqual(lost, ['b']);
  assert.equal(set.member('b').status, 'lost');
});

test('with too few volumes left the write fails', async () => {
  using directories = new Directories();
  await using set = await directories.open(['a', 'b'], { replication_factor: 2 });
  renameSync(directories.dir('b'), directories.dir('elsewhere'));
  await assert.rejects(set.put([object('x')], signal), (error) => isRonError(error, 'not_ready'));
});

test('chunks that a deleted directory had do not count for an object that is stored again', async () => {
  using directories = new Directories();
  await using set = await directories.open(['a', 'b', 'c', 'd'], { replication_factor: 2 });
  const store = new ObjectStore({ volume: set, cache_bytes: 0 });
  const put = async (body: Buffer): Promise<void> => {
    const writer = store.writer();
    await writer.write(body, signal);
    const { address } = await writer.finish({}, signal);
    const manifest = await store.open(address, signal);
    assert.ok(manifest !== undefined && set.copiesOf('object', addressBytes(address)) >= 2);
  };
  const [same, more] = [Buffer.alloc(65_536, 'same'), Buffer.alloc(70_000, 'more')];
  await put(Buffer.concat([same, more]));
  const [holder] = set.members.filter((member) => member.holdsDurably('content', blake3(same)));
  rmSync(directories.dir(holder!.name), { recursive: true });
  await put(Buffer.concat([same, Buffer.alloc(70_000, 'else')]));
  const holders = set.members.filter((member) => member.holdsDurably('content', blake3(same)));
  assert.ok(holders.length >= 2 && !holders.includes(holder!), holders.map(({ name }) => name).join());
});

test('the only volume is not lost: it refuses writes, and is read once it returns', async () => {
  using directories = new Directories();
  await using set = await directories.open(['a'], { replication_factor: 1 });
  await set.put([object('x')], signal);
  renameSync(directories.dir('a'), directories.dir('elsewhere'));
  await assert.rejects(set.put([object('y')], signal), (error) => isRonError(error, 'not_ready'));
  assert.deepEqual([set.member('a').view.condition, set.member('a').status], ['gone', 'active']);
  renameSync(directories.dir('elsewhere'), directories.dir('a'));
  assert.ok(await set.get('object', object('x').id, signal));
});
