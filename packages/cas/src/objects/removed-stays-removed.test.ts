/** An object whose removal was acknowledged stays removed, even if the index is rebuilt after a compaction. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { blake3 } from '@napi-rs/blake-hash';
import { isRonError } from '@ron/kernel';
import type { File } from '@ron/log';
import { CrashFileSystem } from '@ron/log/testing';
import { hexOf } from '../volume/hex.ts';
import { LocalVolume } from '../volume/local-volume.ts';
import { RecordType } from '../volume/record-types.ts';
import type { NewRecord, ReclaimInit } from '../volume/volume.ts';
import { eventually } from '@ron/testkit';

const { signal } = new AbortController();

const chunk = (seed: number, bytes: number): NewRecord => {
  const payload = Buffer.alloc(bytes, `chunk ${seed} `);
  return { type: RecordType.chunk, id: blake3(payload), payload };
};
const payload = Buffer.from('an object');
const object: NewRecord = { type: RecordType.object, id: blake3(payload), payload };
const removal: NewRecord = { type: RecordType.remove, id: object.id, payload: new Uint8Array(0) };

const openOn = (fs: CrashFileSystem, segment_bytes: number): Promise<LocalVolume> =>
  LocalVolume.open({ dir: '/v', fs, segment_bytes, flush_after_ms: Infinity, signal });

/** The volume as it is after its index is lost. */
function withoutIndex(fs: CrashFileSystem): CrashFileSystem {
  return new CrashFileSystem(new Map([...fs.files()].filter(([path]) => !path.startsWith('/v/index'))));
}

/** `isNeeded` for these, and those that are added later. */
function needing(needed: readonly NewRecord[]): Pick<ReclaimInit, 'isNeeded' | 'live_ratio' | 'signal'> {
  const isNeeded = (id: Uint8Array): boolean => needed.some((each) => hexOf(each.id) === hexOf(id));
  return { isNeeded, live_ratio: 0.5, signal };
}

/** Files of the index that are never in memory. The next read of one calls `afterRead` once before it resolves. */
class SlowIndexFiles extends CrashFileSystem {
  afterRead: (() => Promise<void>) | undefined;

  override async create(path: string): Promise<File> {
    return this.#slow(path, await super.create(path));
  }

  override async open(path: string, access: 'read' | 'write'): Promise<File> {
    return this.#slow(path, await super.open(path, access));
  }

  #slow(path: string, file: File): File {
    if (!path.startsWith('/v/index')) return file;
    const read: File['read'] = async (into, length, position) => {
      const { afterRead } = this;
      this.afterRead = undefined;
      const count = await file.read(into, length, position);
      await afterRead?.();
      return count;
    };
    return { ...file, read };
  }
}

test('when the index is flushed while compaction reads the range that a tombstone hides', async () => {
  const fs = new SlowIndexFiles();
  const volume = await openOn(fs, 8192);
  const needed = [chunk(1, 6000)];
  // Segment 1 holds the object and stays. Segment 2 is garbage, and later holds the tombstone.
  await volume.put([object], signal);
  await volume.put(needed, signal);
  await volume.put([chunk(2, 7000)], signal);
  let [isRemoved, flushes] = [false, 0];
  const flush = async (): Promise<void> => {
    flushes += 1;
    await volume.index.flush(() => volume.log.durable);
  };
  const getWithDead = volume.index.getWithDead.bind(volume.index);
  volume.index.getWithDead = (table, id) => {
    fs.afterRead = flush;
    return getWithDead(table, id);
  };
  const pace = async (): Promise<void> => {
    if (isRemoved) return;
    isRemoved = true;
    await volume.put([removal], signal);
    needed.push(chunk(3, 3000));
    await volume.put(needed.slice(1), signal);
  };
  const { segments } = await volume.reclaim({ ...needing(needed), seal_bytes_min: Infinity, pace });
  assert.deepEqual([segments, flushes], [1, 1]);
  assert.ok(volume.wasRemoved(object.id));
  await volume.close();
  const again = await openOn(withoutIndex(fs), 8192);
  assert.ok(!again.has('object', object.id));
  assert.ok(again.wasRemoved(object.id));
  await again.close();
});

test('when an earlier put of it failed and the disk did not let the log cut off its record', async () => {
  let isBroken = false;
  const fs = new CrashFileSystem(new Map(), {
    before: (operation, path) => {
      if (!isBroken || !path.startsWith('/v/segments') || !['sync', 'truncate'].includes(operation)) return;
      throw Object.assign(new Error('EIO'), { code: 'EIO' });
    },
  });
  const volume = await openOn(fs, 16_384);
  const needed = [chunk(1, 9000)];
  await volume.put(needed, signal);
  isBroken = true;
  await assert.rejects(volume.put([object], signal));
  isBroken = false;
  // For a while after a failure the volume refuses puts.
  await eventually('the volume accepts the object', async () => {
    await volume.put([object], signal).catch((error: unknown) => assert.ok(isRonError(error, 'not_ready')));
    return volume.has('object', object.id);
  });
  await volume.put([removal], signal);
  for (const seed of [2, 3]) await volume.put([chunk(seed, 14_000)], signal);
  const { segments } = await volume.reclaim({ ...needing(needed), seal_bytes_min: 1, pace: async () => undefined });
  assert.ok(segments > 0);
  await volume.close();
  const again = await openOn(withoutIndex(fs), 16_384);
  assert.ok(!again.has('object', object.id));
  assert.ok(again.has('content', needed[0]!.id));
  await again.close();
});
