/** Manifests of any size: exact length, the right fields, measured durability, in small batches. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { MemoryVolume, ObjectStore, chunkKey } from '@ron/cas';
import { NEVER } from '@ron/kernel';
import { manifestSource } from './manifest-document.ts';
import type { DurabilityMeter } from './durability-meter.ts';

const MIB = 1024 * 1024;
const CHUNK = 1024;

test('a manifest of several pages is streamed with its exact length and the copies of its weakest part', async () => {
  const store = new ObjectStore({ volume: new MemoryVolume({ bytes_max: 64 * MIB }), chunk_bytes: CHUNK });
  for (const size of [0, 10, CHUNK, CHUNK + 1, 3 * MIB + 5, 9 * MIB]) {
    const writer = store.writer();
    const body = Buffer.alloc(size);
    for (let at = 0; at < size; at += CHUNK) body.writeUInt32LE(at, Math.min(at, Math.max(0, size - 4)));
    await writer.write(body, NEVER);
    const { address } = await writer.finish({ media_type: 'text/x' }, NEVER);
    const object = (await store.open(address, NEVER))!;
    const [weakest] = await object.chunkIds(object.chunks - 1, 1, NEVER);
    const meter: DurabilityMeter = {
      copiesOf: (kind, id) => (kind === 'content' && chunkKey(id) === chunkKey(weakest!) ? 12 : 300),
      durability: (copies) => ({ fsynced: true, copies, target: 300 }),
    };
    const source = manifestSource(object, meter);
    const parts: Uint8Array[] = [];
    for await (const batch of source.read(0, source.size, NEVER)) {
      for (const part of batch) {
        assert.ok(part.length > 0 && part.length < 72 * 1024);
        parts.push(part);
      }
    }
    const text = Buffer.concat(parts).toString();
    assert.equal(text.length, source.size);
    const { chunks, subtrees, ...rest } = JSON.parse(text);
    assert.equal(chunks.length, Math.max(1, Math.ceil(size / CHUNK)));
    assert.equal(subtrees.length, size <= CHUNK ? 0 : chunks.length);
    assert.equal(chunks.at(-1), Buffer.from(weakest!).toString('hex'));
    const copies = size <= CHUNK ? 300 : 12;
    const durability = { fsynced: true, copies, target: 300 };
    assert.deepEqual(rest, { address, size, chunk_bytes: CHUNK, media_type: 'text/x', durability });
  }
});

test('a damaged page fails the stream', async () => {
  const volume = new MemoryVolume({ bytes_max: 64 * MIB });
  const store = new ObjectStore({ volume, chunk_bytes: CHUNK });
  const { address } = await store.put(Buffer.alloc(10 * CHUNK, 1), {}, NEVER);
  const object = (await new ObjectStore({ volume, chunk_bytes: CHUNK }).open(address, NEVER))!;
  const [page] = [...object.pageIds()];
  const get = volume.get.bind(volume);
  volume.get = async (kind, id, signal) => {
    const record = await get(kind, id, signal);
    if (chunkKey(id) === chunkKey(page!)) record!.payload[40]! ^= 1;
    return record;
  };
  const meter: DurabilityMeter = { copiesOf: () => 1, durability: (copies) => ({ fsynced: true, copies, target: 1 }) };
  const source = manifestSource(object, meter);
  await assert.rejects(async () => {
    for await (const batch of source.read(0, source.size, NEVER)) assert.ok(batch);
  }, /damaged/);
});
