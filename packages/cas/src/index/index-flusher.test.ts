/** An index that could not be written for a while: puts are refused, and the index is flushed again without a caller. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { blake3 } from '@napi-rs/blake-hash';
import { isRonError } from '@ron/kernel';
import { CrashFileSystem } from '@ron/log/testing';
import { LocalVolume } from '../volume/local-volume.ts';
import { RecordType } from '../volume/record-types.ts';
import type { NewRecord } from '../volume/volume.ts';
import { eventually } from '@ron/testkit';
import { memoryFiles } from './memory-files.ts';

const { signal } = new AbortController();

/** Records with one index entry each. */
function* manyRecords(): Generator<NewRecord[], never, void> {
  for (let key = 0; ;) {
    yield Array.from({ length: 20_000 }, () => {
      const payload = Buffer.from(`record ${key++}`);
      return { type: RecordType.chunk, id: blake3(payload), payload };
    });
  }
}

const name = 'an overfull index is flushed as soon as that is possible again, without a caller';
test(name, { timeout: 120_000 }, async () => {
  const files = memoryFiles();
  let isBroken = true;
  const written = Promise.withResolvers<void>();
  const indexFs = {
    ...files,
    create: (path: string) => (isBroken ? Promise.reject(new Error('no room')) : files.create(path)),
    rename: async (from: string, to: string) => {
      await files.rename(from, to);
      written.resolve();
    },
  };
  const fs = new CrashFileSystem();
  await using volume = await LocalVolume.open({ dir: '/v', fs, indexFs, flush_after_ms: Infinity, signal });
  const batches = manyRecords();
  await assert.rejects(
    async () => {
      // Entries that a failing flush has at hand do not count until it has failed.
      for (let turn = 0; turn < 60; turn++) await volume.put(batches.next().value, signal, 'later');
    },
    (error) => isRonError(error, 'not_ready') && /cannot be written/.test(error.message),
  );
  const waiting = volume.index.pending;
  assert.ok(waiting >= 2 * 65_536);
  isBroken = false;
  await written.promise;
  await eventually('all entries are flushed', () => volume.index.pending === 0);
  assert.equal(volume.index.count('content'), waiting);
  await volume.put(batches.next().value, signal, 'later');
});
