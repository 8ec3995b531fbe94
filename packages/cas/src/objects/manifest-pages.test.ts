/** Pages of manifests: verified once while cached, shared by all readers, and accounted for in memory. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { NEVER } from '@ron/kernel';
import { chunkKey } from './leases.ts';
import { MemoryVolume } from '../volume/memory-volume.ts';
import { ObjectStore } from './object-store.ts';

const CHUNK = 1024;
const MIB = 1024 * 1024;

test('readers at different offsets of one object read each page once', async () => {
  const volume = new MemoryVolume({ bytes_max: 64 * MIB });
  const store = new ObjectStore({ volume, chunk_bytes: CHUNK });
  const writer = store.writer();
  for (let mib = 0; mib < 13; mib++) await writer.write(Buffer.alloc(MIB, mib), NEVER);
  const { address } = await writer.finish({}, NEVER);
  const object = (await store.open(address, NEVER))!;
  const pages = new Set([...object.pageIds()].map(chunkKey));
  assert.equal(pages.size, 4);
  const reads: string[] = [];
  const get = volume.get.bind(volume);
  volume.get = (kind, id, signal) => {
    if (pages.has(chunkKey(id))) reads.push(chunkKey(id));
    return get(kind, id, signal);
  };
  for (let round = 0; round < 20; round++) {
    for (const page of [0, 2]) {
      const start = page * 4 * MIB + round * CHUNK;
      for await (const batch of object.read(start, start + 1, NEVER)) {
        assert.equal(batch[0]![0], Math.floor(start / MIB));
      }
      for await (const batch of object.slice(start, 1, NEVER)) assert.ok(batch.length > 0);
    }
  }
  assert.equal(reads.length, 2);
  assert.equal(new Set(reads).size, 2);
});

test('reading one chunk of each of 2000 large objects uses no more memory than accounted for', async () => {
  const program = join(import.meta.dirname, 'manifest-pages.memory.ts');
  const { stdout } = await promisify(execFile)(process.execPath, ['--expose-gc', program, '2000']);
  const { grown_bytes, charged_bytes } = JSON.parse(stdout);
  // An eighth of the cache for objects, another for pages.
  assert.ok(charged_bytes > 8 * MIB && charged_bytes <= 16 * MIB, `${charged_bytes} bytes are charged`);
  assert.ok(grown_bytes < charged_bytes + MIB, `${grown_bytes} bytes are held, ${charged_bytes} are charged`);
});
