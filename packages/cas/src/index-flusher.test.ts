/** An index that could not be written for a while: puts wait outside, and are taken again by themselves. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { blake3 } from '@napi-rs/blake-hash';
import { isRonError } from '@ron/kernel';
import { CrashFileSystem } from '@ron/log/testing';
import { LocalVolume } from './local-volume.ts';
import { MemoryStore } from './memory-store.ts';
import type { Applied, Changes } from './place-index.ts';
import { RecordType } from './record-types.ts';
import type { NewRecord } from './volume.ts';

const { signal } = new AbortController();

class BrokenStore extends MemoryStore {
  isBroken = true;
  /** How many entries the first flush has stored that worked. */
  readonly stored = Promise.withResolvers<number>();

  override async store(changes: Changes, applied: Applied): Promise<void> {
    if (this.isBroken) throw new Error('no room');
    await super.store(changes, applied);
    this.stored.resolve(changes.size);
  }
}

/** Records that take an entry of the index each. */
function* manyRecords(): Generator<NewRecord[], never, void> {
  for (let key = 0; ;) {
    yield Array.from({ length: 20_000 }, () => {
      const payload = Buffer.from(`record ${key++}`);
      return { type: RecordType.chunk, id: blake3(payload), payload };
    });
  }
}

const name = 'an index that is overfull is flushed by itself when it can be, also when nothing else would do it';
test(name, { timeout: 120_000 }, async () => {
  const places = new BrokenStore();
  const fs = new CrashFileSystem();
  await using volume = await LocalVolume.open({ dir: '/v', fs, places, flush_after_ms: Infinity, signal });
  const batches = manyRecords();
  await assert.rejects(
    async () => {
      for (let turn = 0; turn < 10; turn++) await volume.put(batches.next().value, signal, 'later');
    },
    (error) => isRonError(error, 'not_ready') && /cannot be written/.test(error.message),
  );
  const waiting = volume.index.pending;
  assert.ok(waiting >= 2 * 65_536);
  places.isBroken = false;
  assert.equal(await places.stored.promise, waiting);
  assert.ok(!volume.index.isOverfull);
  await volume.put(batches.next().value, signal, 'later');
});
