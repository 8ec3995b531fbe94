/** An index flush beside a sync that fails, then kill -9: the next start finds an index that the log agrees with. */
import assert from 'node:assert/strict';
import { cpSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { blake3 } from '@napi-rs/blake-hash';
import { realFileSystem, type File, type FileSystem } from '@ron/log';
import { LocalVolume } from './local-volume.ts';
import { RecordType } from './record-types.ts';
import type { NewRecord } from './volume.ts';

const { signal } = new AbortController();

const chunk = (text: string): NewRecord => {
  const payload = Buffer.from(text);
  return { type: RecordType.chunk, id: blake3(payload), payload };
};

/** Segment files whose next sync waits until it is released, and then fails. */
class HeldSync {
  readonly begun = Promise.withResolvers<void>();
  readonly end = Promise.withResolvers<void>();
  isArmed = false;

  wrap(file: File): File {
    return new Proxy(file, {
      get: (target, name) => {
        const value: unknown = Reflect.get(target, name);
        if (name !== 'sync') return typeof value === 'function' ? (value.bind(target) as unknown) : value;
        return async () => {
          if (!this.isArmed) return await target.sync();
          this.isArmed = false;
          this.begun.resolve();
          await this.end.promise;
          throw Object.assign(new Error('EIO'), { code: 'EIO' });
        };
      },
    });
  }
}

test('no record counts as lost, nothing is rebuilt, and the volume is not doubtful', async (t) => {
  const root = mkdtempSync(join(tmpdir(), 'ron-flush-'));
  const [dir, copy] = [join(root, 'volume'), join(root, 'after the crash')];
  const held = new HeldSync();
  const fs: FileSystem = { ...realFileSystem, create: async (path) => held.wrap(await realFileSystem.create(path)) };
  const volume = await LocalVolume.open({ dir, fs, flush_after_ms: Infinity, signal });
  t.after(async () => {
    await volume.close();
    rmSync(root, { recursive: true });
  });
  const kept = chunk('acknowledged');
  await volume.put([kept], signal);
  await volume.put([chunk('left to a sync')], signal, 'later');
  held.isArmed = true;
  const failed = assert.rejects(volume.put([chunk('never acknowledged')], signal));
  await held.begun.promise;
  // A flush needs no sync of the log: it ends while the sync is held.
  await volume.inventory('content', undefined, 10);
  held.end.resolve();
  await failed;
  cpSync(dir, copy, { recursive: true });
  const rebuilds: string[] = [];
  const again = await LocalVolume.open({ dir: copy, onRebuild: (why) => void rebuilds.push(why), signal });
  try {
    assert.deepEqual(rebuilds, []);
    assert.ok(!again.isDoubtful);
    assert.deepEqual(Buffer.from((await again.get('content', kept.id, signal))!.payload), kept.payload);
  } finally {
    await again.close();
  }
});
