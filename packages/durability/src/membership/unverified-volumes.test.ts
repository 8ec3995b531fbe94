/** Volumes that lost records which they cannot name: compaction waits until they are reconciled with the others. */
import assert from 'node:assert/strict';
import { readdirSync, statSync, truncateSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { blake3 } from '@napi-rs/blake-hash';
import { RecordType, type NewRecord, type Volume } from '@ron/cas';
import { isRonError } from '@ron/kernel';
import { Directories } from '../testing/directories.ts';
import { VolumeSet } from '../set/volume-set.ts';

const { signal } = new AbortController();
const ALL = ['a', 'b', 'c'];
const RF3 = { replication_factor: 3, write_min: 2 };

function record(type: number, text: string): NewRecord {
  const payload = Buffer.from(text);
  return { type, id: blake3(payload), payload };
}
const X = record(RecordType.object, 'an object');
const mark = (type: number): NewRecord => ({ type, id: X.id, payload: new Uint8Array(0) });

async function reclaim(set: VolumeSet): Promise<void> {
  const init = { isNeeded: () => true, live_ratio: 0.5, seal_bytes_min: 0, pace: () => Promise.resolve(), signal };
  await set.reclaim(init);
}

/** The last record of the log is gone, though the index knows of it. */
function cut(dir: string): void {
  const segments = join(dir, 'segments');
  const path = join(segments, readdirSync(segments).toSorted().at(-1)!);
  truncateSync(path, statSync(path).size - 1);
}

/** In each of the directories the last record is lost. */
async function prepare(directories: Directories, damaged: readonly string[]): Promise<void> {
  {
    await using set = await directories.open(ALL, RF3);
    await set.put([X], signal);
    for (const { name, volume } of set.members) await volume.put([record(RecordType.chunk, name)], signal);
  }
  for (const name of damaged) cut(directories.dir(name));
}

const isRefused = (error: unknown): boolean =>
  isRonError(error, 'not_ready') && /lost records that it cannot name|is catching up/.test(error.message);

for (const damaged of [['a'], ['a', 'b'], ALL]) {
  test(`${damaged.length} of three in doubt: nothing is reclaimed until a plan has compared them`, async () => {
    using directories = new Directories();
    await prepare(directories, damaged);
    await using set = await directories.open(ALL, RF3);
    assert.deepEqual(
      set.members.filter(({ volume }) => volume.isDoubtful === true).map((member) => member.name),
      damaged,
    );
    await assert.rejects(reclaim(set), isRefused);
    assert.equal(await set.reconcileStale(signal), damaged.length);
    assert.equal(set.incomplete, undefined);
    assert.ok(set.members.every((member) => member.isCurrent));
    await reclaim(set);
    assert.ok(set.has('object', X.id));
    assert.equal(await set.reconcileStale(signal), 0, 'they are compared once');
  });
}

test('unverified volumes wait for an absent one, or until it is abandoned', async () => {
  for (const isGivenUp of [false, true]) {
    using directories = new Directories();
    await prepare(directories, ['a', 'b']);
    await using set = await directories.open(['a', 'b'], RF3);
    assert.equal(await set.reconcileStale(signal), 0);
    assert.match(set.incomplete!, /c is away; a lost records that it cannot name; b lost/);
    const [away] = set.membership.missing();
    if (isGivenUp) await set.lifecycle.setAbandoned(away!, true, signal);
    else set.lifecycle.add({ volume: await directories.volume('c') });
    assert.equal(await set.reconcileStale(signal), isGivenUp ? 2 : 3);
    assert.equal(set.incomplete, undefined);
  }
});

test('a pin and an object that only one of them has are on all of them afterwards', async () => {
  using directories = new Directories();
  const open = async (name: string): Promise<Volume> =>
    Object.assign(await directories.volume(name), { isDoubtful: true });
  const [a, b, c] = [await open('a'), await open('b'), await open('c')];
  await a.put([X, mark(RecordType.pin)], signal);
  await b.put([X], signal);
  await c.put([X, mark(RecordType.remove)], signal);
  const volumes = [a, b, c];
  await using set = await VolumeSet.open({ members: volumes.map((volume) => ({ volume })), ...RF3, signal });
  assert.match(set.incomplete!, /a lost records that it cannot name; b lost .*; c lost/);
  await set.reconcileStale(signal);
  assert.equal(set.incomplete, undefined);
  assert.ok(volumes.every((volume) => volume.has('object', X.id) && volume.isPinned(X.id)));
});

test('unverified volumes are reconciled with a verified one, even if they opened first', async () => {
  using directories = new Directories();
  {
    await using set = await directories.open(ALL, RF3);
    await set.put([X], signal);
    await set.put([mark(RecordType.pin)], signal);
  }
  const inDoubt = await Promise.all(
    ['a', 'b'].map(async (name) => Object.assign(await directories.volume(name), { isDoubtful: true })),
  );
  // They lost the pin.
  for (const volume of inDoubt) await volume.put([mark(RecordType.unpin)], signal);
  await using set = await VolumeSet.open({ members: inDoubt.map((volume) => ({ volume })), ...RF3, signal });
  set.lifecycle.add({ volume: await directories.volume('c') });
  assert.equal(await set.reconcileStale(signal), 3);
  assert.equal(set.incomplete, undefined);
  assert.ok(set.members.every((member) => member.isCurrent && member.volume.isPinned(X.id)));
});
