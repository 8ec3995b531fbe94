/** Writers that stop and resume, hold only the leases that they need, and never more than two chunks. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { blake3 } from '@napi-rs/blake-hash';
import { isRonError, TokenBucket } from '@ron/kernel';
import { formatAddress, type Address } from '@ron/proto';
import { CrashFileSystem } from '@ron/log/testing';
import fc from 'fast-check';
import { Compactor } from '../compaction/compactor.ts';
import { chunkKey } from './leases.ts';
import { LocalVolume } from '../volume/local-volume.ts';
import { PAGE_ENTRIES_MAX } from './manifest.ts';
import { MemoryVolume } from '../volume/memory-volume.ts';
import { ObjectStore } from './object-store.ts';
import type { WriterState } from './object-writer.ts';

const signal = new AbortController().signal;
const CHUNK = 1024;

const content = (size: number, seed = 1): Buffer => {
  const bytes = Buffer.allocUnsafe(size);
  for (let at = 0, x = seed; at < size; at++) bytes[at] = (x = Math.imul(x, 1_103_515_245) + 12_345) >>> 16;
  return bytes;
};

const open = (init: { batch_bytes?: number } = {}): ObjectStore =>
  new ObjectStore({ volume: new MemoryVolume({ bytes_max: 64 << 20 }), chunk_bytes: CHUNK, cache_bytes: 0, ...init });

async function get(store: ObjectStore, address: Address): Promise<Buffer> {
  const object = (await store.open(address, signal))!;
  const parts: Uint8Array[] = [];
  for await (const part of object.read(0, object.size, signal)) parts.push(Buffer.concat(part));
  return Buffer.concat(parts);
}

/** Writes `bytes` with a new writer after each of `stops`. */
async function writeInParts(store: ObjectStore, bytes: Buffer, stops: readonly number[]): Promise<Address> {
  let state: WriterState | undefined;
  let at = 0;
  for (const stop of stops) {
    const writer = store.writer(state);
    assert.equal(writer.size, at);
    await writer.write(bytes.subarray(at, stop), signal);
    state = await writer.checkpoint(signal);
    writer.abort();
    at = stop;
  }
  const last = store.writer(state);
  await last.write(bytes.subarray(at), signal);
  const { address, size } = await last.finish({}, signal);
  assert.equal(size, bytes.length);
  return address;
}

test('the object does not depend on how often the writer was replaced', async () => {
  const sizes = fc.array(fc.nat(6 * CHUNK), { maxLength: 5 });
  await fc.assert(
    fc.asyncProperty(sizes, fc.nat(6 * CHUNK), async (stops, size) => {
      const store = open();
      const bytes = content(size);
      const inside = stops.map((stop) => Math.min(stop, size)).toSorted((a, b) => a - b);
      const address = await writeInParts(store, bytes, inside);
      // [storage I-10]
      assert.equal(address, formatAddress(blake3(bytes)));
      assert.deepEqual(await get(store, address), bytes);
      assert.equal(store.leases.size, 0);
    }),
    { numRuns: 60 },
  );
});

test('a writer can be replaced around the end of a page, even if nothing follows it', async () => {
  const page_bytes = PAGE_ENTRIES_MAX * CHUNK;
  for (const [stop, size] of [
    [page_bytes, page_bytes],
    [page_bytes - 1, page_bytes],
    [page_bytes + 1, page_bytes + 5000],
  ] as const) {
    const store = open();
    const bytes = content(size);
    const address = await writeInParts(store, bytes, [stop]);
    assert.equal(address, formatAddress(blake3(bytes)), `${stop} of ${size}`);
    assert.deepEqual(await get(store, address), bytes);
  }
});

test('a writer of many chunks holds a lease for each page, and for the chunks of the last one', async () => {
  const store = open();
  const writer = store.writer();
  await writer.write(content(2 * PAGE_ENTRIES_MAX * CHUNK + 10 * CHUNK + 1), signal);
  assert.equal(store.leases.size, 2 + 10);
  writer.abort();
  assert.equal(store.leases.size, 0);
});

test('chunks of a leased page are not reclaimed', async () => {
  const store = open();
  const bucket = new TokenBucket('test', { rate_per_s: 2 ** 32, burst: 2 ** 32 });
  const compactor = new Compactor({ store, uploads: undefined, bucket });
  const bytes = content((PAGE_ENTRIES_MAX + 3) * CHUNK);
  const writer = store.writer();
  await writer.write(bytes, signal);
  assert.equal((await compactor.run(signal)).freed_bytes, 0);
  const { address } = await writer.finish({}, signal);
  assert.deepEqual(await get(store, address), bytes);
});

test('a page that is leased during a sweep keeps its chunks too', async () => {
  const store = open();
  const bytes = content((PAGE_ENTRIES_MAX + 3) * CHUNK);
  const writer = store.writer();
  await writer.write(bytes.subarray(0, 100 * CHUNK), signal);
  assert.deepEqual(store.leases.beginSweep(), []);
  await writer.write(bytes.subarray(100 * CHUNK), signal);
  const { address } = await writer.finish({}, signal);
  const isNeeded = (id: Uint8Array): boolean => !store.leases.isFree(id);
  await store.volume.reclaim({ isNeeded, live_ratio: 1, seal_bytes_min: 0, pace: () => Promise.resolve(), signal });
  store.leases.endSweep();
  assert.deepEqual(await get(store, address), bytes);
});

test('a part that was lost since the state was saved is detected before the object is acknowledged', async () => {
  const store = open();
  const first = store.writer();
  await first.write(content(5 * CHUNK), signal);
  const state = await first.checkpoint(signal);
  first.abort();
  // The chunks are not leased, so a sweep reclaims them.
  store.leases.beginSweep();
  const isNeeded = (id: Uint8Array): boolean => !store.leases.isFree(id);
  await store.volume.reclaim({ isNeeded, live_ratio: 1, seal_bytes_min: 0, pace: () => Promise.resolve(), signal });
  store.leases.endSweep();
  await assert.rejects(store.writer(state).finish({}, signal), (error) => isRonError(error, 'not_ready'));
});

test('at most one batch is being written while another is filled', async () => {
  const store = open({ batch_bytes: 2 * CHUNK });
  const { volume } = store;
  const put = volume.put.bind(volume);
  let waiting = 0;
  const release = Promise.withResolvers<void>();
  volume.put = async (...args) => {
    waiting += 1;
    await release.promise;
    waiting -= 1;
    await put(...args);
  };
  const writer = store.writer();
  let written = 0;
  const writing = (async () => {
    for (let at = 0; at < 10 * CHUNK; at += 256) {
      await writer.write(content(256, at), signal);
      written = at + 256;
    }
  })();
  for (let turn = 0; turn < 50; turn++) await new Promise<void>((resolve) => void setImmediate(resolve));
  assert.equal(waiting, 1);
  assert.equal(written, 4 * CHUNK, 'one being written and one waiting');
  release.resolve();
  await writing;
  writer.abort();
});

test('a small object is leased while it is put, and not afterwards', async () => {
  const store = open();
  const { volume } = store;
  const put = volume.put.bind(volume);
  const bytes = content(100);
  let held = false;
  volume.put = async (...args) => {
    held = store.leases.isHeld(chunkKey(blake3(bytes)));
    await put(...args);
  };
  const writer = store.writer();
  await writer.write(bytes, signal);
  await writer.finish({}, signal);
  assert.ok(held);
  assert.equal(store.leases.size, 0);
});

test('a chunk that occurs many times in one object is stored once, although no sync has made it visible', async () => {
  const init = { dir: '/v', fs: new CrashFileSystem(), signal };
  await using volume = await LocalVolume.open({ ...init, flush_after_ms: Infinity });
  const store = new ObjectStore({ volume, chunk_bytes: CHUNK, cache_bytes: 0, batch_bytes: CHUNK });
  const writer = store.writer();
  for (let turn = 0; turn < 100; turn++) await writer.write(Buffer.alloc(CHUNK, 7), signal);
  const { address } = await writer.finish({}, signal);
  assert.ok(volume.stats().used_bytes < 20 * CHUNK, `${volume.stats().used_bytes} bytes are stored`);
  assert.deepEqual(await get(store, address), Buffer.alloc(100 * CHUNK, 7));
});
