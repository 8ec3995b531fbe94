/** An entry is found at every stage of its flush, and the index on disk is never ahead of the log. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { blake3 } from '@napi-rs/blake-hash';
import type { File, FileSystem } from '@ron/log';
import type { Applied, Place } from './entry.ts';
import { memoryFiles } from './memory-files.ts';
import { PlaceIndex } from './place-index.ts';
import { RunIndex } from './run-index.ts';

const idOf = (key: number): Uint8Array => blake3(Buffer.from(`${key}`));
const placeOf = (offset: number, segment = 1): Place => ({
  segment,
  offset,
  type: 1,
  payload_bytes: 10,
  meta_bytes: 0,
  seq: offset,
  time_s: 5,
});
const appliedTo = (offset: number) => (): Applied => ({ position: { segment: 1, offset }, seq: offset });

/** Files whose creation waits for a gate, or fails with it. */
function gatedFiles(): FileSystem & { gate: Promise<void> } {
  const files = memoryFiles();
  const gated = {
    ...files,
    gate: Promise.resolve(),
    create: async (path: string) => {
      await gated.gate;
      return await files.create(path);
    },
  };
  return gated;
}

async function openIndex(fs: FileSystem): Promise<PlaceIndex> {
  return new PlaceIndex({ runs: await RunIndex.open({ fs, dir: '/index' }) });
}

test('an entry is found before, while and after it is flushed; the newest one wins', async () => {
  const fs = gatedFiles();
  const index = await openIndex(fs);
  index.set('content', idOf(1), placeOf(10));
  assert.equal((await index.get('content', idOf(1)))!.offset, 10);
  assert.equal(await index.get('object', idOf(1)), undefined);
  const gate = Promise.withResolvers<void>();
  fs.gate = gate.promise;
  const flush = index.flush(appliedTo(20));
  await Promise.resolve();
  assert.equal((await index.get('content', idOf(1)))!.offset, 10);
  index.set('content', idOf(1), placeOf(30));
  index.remove('content', idOf(2));
  gate.resolve();
  await flush;
  assert.equal((await index.get('content', idOf(1)))!.offset, 30);
  await index.flush(appliedTo(40));
  assert.equal((await (await openIndex(fs)).get('content', idOf(1)))!.offset, 30);
  index.remove('content', idOf(1));
  assert.equal(await index.get('content', idOf(1)), undefined);
  await index.flush(appliedTo(50));
  assert.equal(await (await openIndex(fs)).get('content', idOf(1)), undefined);
});

test('applied is never ahead of the entries, and never goes back', async () => {
  const fs = gatedFiles();
  const index = await openIndex(fs);
  let tail = 10;
  const applied = (): Applied => appliedTo(tail)();
  const gate = Promise.withResolvers<void>();
  fs.gate = gate.promise;
  index.set('content', idOf(1), placeOf(1));
  const first = index.flush(applied);
  await Promise.resolve();
  index.set('content', idOf(2), placeOf(2));
  tail = 20;
  const second = index.flush(applied);
  index.set('content', idOf(3), placeOf(3));
  tail = 30;
  // It joins the flush that has not begun.
  assert.equal(index.flush(applied), second);
  gate.resolve();
  await first;
  assert.deepEqual(index.applied, appliedTo(10)());
  await second;
  assert.deepEqual(index.applied, appliedTo(30)());
  assert.equal((await index.page('content', undefined)).entries.length, 3);
  assert.equal(index.pending, 0);
});

test('a flush that fails loses nothing, and entries that were set meanwhile lie above those that it gives back', async () => {
  const fs = gatedFiles();
  const index = await openIndex(fs);
  index.set('content', idOf(1), placeOf(1));
  index.set('content', idOf(2), placeOf(2));
  index.set('pin', idOf(3), placeOf(3));
  const gate = Promise.withResolvers<void>();
  fs.gate = gate.promise;
  const flush = assert.rejects(index.flush(appliedTo(10)), /full/);
  await Promise.resolve();
  index.set('content', idOf(1), placeOf(20));
  index.remove('content', idOf(2));
  gate.reject(new Error('full'));
  await flush;
  assert.equal(index.applied, undefined);
  assert.equal((await index.get('content', idOf(1)))!.offset, 20);
  assert.equal(await index.get('content', idOf(2)), undefined);
  fs.gate = Promise.resolve();
  await index.flush(appliedTo(30));
  const again = await openIndex(fs);
  assert.equal((await again.get('content', idOf(1)))!.offset, 20);
  assert.equal((await again.get('pin', idOf(3)))!.offset, 3);
});

test('a flush without anything new writes nothing', async () => {
  const fs = gatedFiles();
  const index = await openIndex(fs);
  await index.flush(() => ({ position: { segment: 0, offset: 0 }, seq: 0 }));
  assert.deepEqual(await fs.list('/index'), []);
  index.set('content', idOf(1), placeOf(1));
  await index.flush(appliedTo(10));
  fs.gate = Promise.reject(new Error('written'));
  fs.gate.catch(() => undefined);
  await index.flush(appliedTo(10));
  await assert.rejects(index.flush(appliedTo(11)), /written/);
});

test('a moved record is entered unless a newer one came, even if that was flushed meanwhile', async () => {
  for (const isNewer of [false, true]) {
    const index = await openIndex(memoryFiles());
    index.set('object', idOf(1), placeOf(5, 1));
    await index.flush(appliedTo(10));
    using hold = await index.hold('object', idOf(1));
    assert.equal(hold.place?.segment, 1);
    if (isNewer) index.enter('object', idOf(1), placeOf(20, 2));
    await index.flush(appliedTo(20));
    index.enter('object', idOf(1), { ...placeOf(5, 3), offset: 640 });
    const place = (await index.get('object', idOf(1)))!;
    assert.equal(place.segment, isNewer ? 2 : 3);
    await index.flush(appliedTo(30));
    const { dead_from, dead_to } = (await index.getWithDead('object', idOf(1)))!;
    // The copy in segment 3 is superseded as well.
    assert.deepEqual([dead_from, dead_to], isNewer ? [1, 3] : [1, 1]);
  }
});

test('an entry that was dropped while its record moved stays dropped', async () => {
  const index = await openIndex(memoryFiles());
  index.set('content', idOf(1), placeOf(5, 1));
  using hold = await index.hold('content', idOf(1));
  index.remove('content', idOf(1));
  await index.flush(appliedTo(10));
  index.enter('content', idOf(1), placeOf(5, 3));
  assert.equal(hold.place, undefined);
  assert.equal(await index.get('content', idOf(1)), undefined);
});

test('the range of superseded records survives flushes, merges and listings', async () => {
  const index = await openIndex(memoryFiles());
  for (let segment = 1; segment <= 9; segment++) {
    index.enter('object', idOf(1), placeOf(segment * 64, segment));
    await index.flush(appliedTo(segment * 64));
    await index.runs.merged();
  }
  index.enter('object', idOf(1), placeOf(1000, 12));
  const expected = { dead_from: 1, dead_to: 9 };
  const rangeOf = (place: Place | undefined): object => ({ dead_from: place?.dead_from, dead_to: place?.dead_to });
  assert.deepEqual(rangeOf(await index.getWithDead('object', idOf(1))), expected);
  assert.deepEqual(rangeOf((await index.page('object', undefined)).entries[0]![1]), expected);
});

test('the range of superseded records includes an entry that was flushed while the runs were read', async () => {
  const files = memoryFiles();
  let gate = Promise.resolve();
  const reading = Promise.withResolvers<void>();
  // Entries are never in memory, and a read waits for the gate.
  const slow = (file: File): File => ({
    ...file,
    readNow: () => undefined,
    read: async (into, length, position) => {
      const count = await file.read(into, length, position);
      reading.resolve();
      await gate;
      return count;
    },
  });
  const fs: FileSystem = { ...files, create: async (path) => slow(await files.create(path)) };
  const index = await openIndex(fs);
  index.enter('object', idOf(1), placeOf(64, 1));
  await index.flush(appliedTo(100));
  index.enter('object', idOf(1), placeOf(200, 2));
  const opened = Promise.withResolvers<void>();
  gate = opened.promise;
  const found = index.getWithDead('object', idOf(1));
  await reading.promise;
  await index.flush(appliedTo(300));
  opened.resolve();
  const { segment, dead_from, dead_to } = (await found)!;
  assert.deepEqual({ segment, dead_from, dead_to }, { segment: 2, dead_from: 1, dead_to: 1 });
});
