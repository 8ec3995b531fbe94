/** A set forgets a removal only while no volume could bring the object back. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { blake3 } from '@napi-rs/blake-hash';
import { RecordType, type NewRecord } from '@ron/cas';
import { Directories } from '../testing/directories.ts';
import type { VolumeSet } from './volume-set.ts';

const { signal } = new AbortController();
const ALL = ['a', 'b', 'c'];
const RF3 = { replication_factor: 3, write_min: 2 };
const payload = Buffer.from('an object');
const X: NewRecord = { type: RecordType.object, id: blake3(payload), payload };
const REMOVE: NewRecord = { type: RecordType.remove, id: X.id, payload: new Uint8Array(0) };

async function reclaim(set: VolumeSet): Promise<void> {
  const init = { isNeeded: () => false, live_ratio: 1.1, seal_bytes_min: 0, pace: () => Promise.resolve(), signal };
  for (let round = 0; round < 3; round++) await set.reclaim(init);
}

const remembering = (set: VolumeSet): string[] =>
  set.members.filter((member) => member.volume.wasRemoved(X.id)).map((member) => member.name);

test('with every volume open the removal is forgotten, and the object stays removed', async () => {
  using directories = new Directories();
  {
    await using set = await directories.open(ALL, RF3);
    await set.put([X], signal);
    await set.put([REMOVE], signal);
    await reclaim(set);
    assert.deepEqual(remembering(set), []);
  }
  await using set = await directories.open(ALL, RF3);
  assert.ok(!set.has('object', X.id));
});

test('while a volume is absent the removal is kept, and applied to the volume when it returns', async () => {
  using directories = new Directories();
  {
    await using set = await directories.open(ALL, RF3);
    await set.put([X], signal);
  }
  {
    await using set = await directories.open(['a', 'b'], RF3);
    await set.put([REMOVE], signal);
    // Compaction may refuse to run while a volume is absent.
    await reclaim(set).catch(() => undefined);
    assert.deepEqual(remembering(set), ['a', 'b']);
  }
  await using set = await directories.open(ALL, RF3);
  assert.ok(!set.has('object', X.id));
  await set.reconcileStale(signal);
  assert.ok(!set.member('c').volume.has('object', X.id));
  await reclaim(set);
  assert.deepEqual(remembering(set), []);
  assert.ok(!set.has('object', X.id));
});
