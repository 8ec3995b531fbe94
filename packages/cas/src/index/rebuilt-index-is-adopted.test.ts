/** A rebuilt index replaces the old one completely, or the old one stays in use. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { blake3 } from '@napi-rs/blake-hash';
import { isRonError } from '@ron/kernel';
import type { FileSystem } from '@ron/log';
import { CrashFileSystem } from '@ron/log/testing';
import type { Applied, Place } from './entry.ts';
import { memoryFiles } from './memory-files.ts';
import { PlaceIndex } from './place-index.ts';
import { rebuildIndex } from './rebuild.ts';
import { RunIndex } from './run-index.ts';
import { LocalVolume } from '../volume/local-volume.ts';
import { RecordType } from '../volume/record-types.ts';

const { signal } = new AbortController();

const idOf = (key: number): Uint8Array => blake3(Buffer.from(`${key}`));
const placeOf = (offset: number): Place => ({
  segment: 1,
  offset,
  type: RecordType.chunk,
  payload_bytes: 10,
  meta_bytes: 0,
  seq: offset,
  time_s: 5,
});
const appliedTo = (offset: number) => (): Applied => ({ position: { segment: 1, offset }, seq: offset });

const openIndex = async (fs: FileSystem, dir: string): Promise<PlaceIndex> =>
  new PlaceIndex({ runs: await RunIndex.open({ fs, dir }) });

const chunk = (seed: number): { type: number; id: Uint8Array; payload: Uint8Array } => {
  const payload = Buffer.from(`content ${seed}`);
  return { type: RecordType.chunk, id: blake3(payload), payload };
};

const isIndexFile = (path: string): boolean => /^\/v\/index(?:\.next)?\//.test(path);
const indexDirs = (fs: CrashFileSystem): string[] => [
  ...new Set([...fs.files().keys()].filter(isIndexFile).map((path) => path.split('/')[2]!)),
];

test('an adoption waits for the flush that was requested before it', async () => {
  const files = memoryFiles();
  const begun = Promise.withResolvers<void>();
  // The disk of the old index is slow: a file takes many turns of the event loop.
  const fs: FileSystem = {
    ...files,
    create: async (path) => {
      begun.resolve();
      for (let turn = 0; turn < 50 && path.startsWith('/index/'); turn++) {
        await new Promise((resolve) => void setImmediate(resolve));
      }
      return await files.create(path);
    },
  };
  const index = await openIndex(fs, '/index');
  index.beginRebuild(await openIndex(fs, '/index.next'));
  index.set('content', idOf(1), placeOf(10));
  const running = index.flush(appliedTo(20));
  await begun.promise;
  index.set('content', idOf(2), placeOf(30));
  const waiting = index.flush(appliedTo(40));
  const adopted = index.adoptRebuilt(appliedTo(40));
  await Promise.all([running, waiting, adopted]);
  assert.equal(index.runs.dir, '/index.next');
  assert.deepEqual(await fs.list('/index'), []);
  await index.close();
  const again = await openIndex(fs, '/index.next');
  assert.equal((await again.page('content', undefined)).entries.length, 2);
  assert.deepEqual(again.applied, appliedTo(40)());
  await again.close();
});

test('after a failed adoption, the old index is intact and still merges its runs', async () => {
  const keys = 60;
  let isFull = false;
  const fs = new CrashFileSystem(new Map(), {
    before: (operation, path) => {
      if (!isFull || operation !== 'create' || !path.startsWith('/v/index.next/')) return;
      throw Object.assign(new Error('ENOSPC'), { code: 'ENOSPC' });
    },
  });
  const volume = await LocalVolume.open({ dir: '/v', fs, flush_after_ms: Infinity, signal });
  const { log, index } = volume;
  await volume.put([chunk(0)], signal);
  await index.flush(() => log.durable);
  isFull = true;
  await assert.rejects(rebuildIndex({ log, index, fs, dir: '/v', signal }), (error) => isRonError(error));
  isFull = false;
  assert.deepEqual(indexDirs(fs), ['index']);
  for (let seed = 1; seed < keys; seed++) {
    await volume.put([chunk(seed)], signal);
    await index.flush(() => log.durable);
  }
  await index.runs.merged();
  assert.ok(index.runs.runs.length < 20, `${index.runs.runs.length} runs`);
  await rebuildIndex({ log, index, fs, dir: '/v', signal });
  assert.deepEqual(indexDirs(fs), ['index.next']);
  assert.equal((await volume.inventory('content', undefined, 100)).length, keys);
  await volume.close();
});

test('after a crash at any step of a rebuild, the next start has every record and keeps one index', async () => {
  const fs = new CrashFileSystem();
  const volume = await LocalVolume.open({ dir: '/v', fs, flush_after_ms: Infinity, signal });
  const { log, index } = volume;
  for (const seed of [1, 2, 3]) {
    await volume.put([chunk(seed)], signal);
    await index.flush(() => log.durable);
  }
  const from = fs.operations;
  await volume.put([chunk(4)], signal);
  await rebuildIndex({ log, index, fs, dir: '/v', signal });
  const to = fs.operations;
  await volume.close();
  let withBoth = 0;
  for (let at = from; at <= to; at++) {
    for (const files of fs.imagesAt(at, 4, () => 0.5)) {
      const disk = new CrashFileSystem(files);
      if (indexDirs(disk).length === 2) withBoth += 1;
      const again = await LocalVolume.open({ dir: '/v', fs: disk, flush_after_ms: Infinity, signal });
      assert.ok(!again.isDoubtful);
      for (const seed of [1, 2, 3]) assert.ok(await again.get('content', chunk(seed).id, signal));
      assert.ok(at < to || (await again.get('content', chunk(4).id, signal)));
      assert.equal(indexDirs(disk).length, 1, `after operation ${at}`);
      await again.close();
    }
  }
  assert.ok(withBoth > 0);
});
