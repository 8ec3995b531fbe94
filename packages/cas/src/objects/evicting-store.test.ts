/** A cache on the object store stays within its bound in bytes. */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, test } from 'node:test';
import { isRonError, TokenBucket } from '@ron/kernel';
import type { Address } from '@ron/proto';
import { Compactor } from '../compaction/compactor.ts';
import { eventually } from '@ron/testkit';
import { EvictingStore } from './evicting-store.ts';
import { LocalVolume } from '../volume/local-volume.ts';
import { ObjectStore } from './object-store.ts';

const { signal } = new AbortController();
const KIB = 1024;
let dir: string;
let volume: LocalVolume;
let cache: EvictingStore;
let evicted: Address[];

beforeEach(async () => {
  dir = mkdtempSync(join(tmpdir(), 'ron-evicting-'));
  evicted = [];
  await open();
});
afterEach(async () => {
  await cache.close();
  await volume.close();
  rmSync(dir, { recursive: true });
});

async function open(): Promise<void> {
  volume = await LocalVolume.open({ dir, signal, segment_bytes: 256 * KIB, flush_after_ms: Infinity });
  const store = new ObjectStore({ volume, cache_bytes: 0 });
  const bucket = new TokenBucket('test', { rate_per_s: 2 ** 32, burst: 2 ** 32 });
  const compactor = new Compactor({ store, uploads: undefined, bucket, seal_bytes_min: 64 * KIB });
  const onEvict = (address: Address): number => evicted.push(address);
  cache = await EvictingStore.open({ store, compactor, bytes_max: 256 * KIB, onEvict, sync_after_ms: 5, signal });
}

const bodyOf = (size: number, seed: number): Buffer => Buffer.alloc(size, `body ${seed} `);
const put = async (size: number, seed: number): Promise<Address> =>
  (await cache.put(bodyOf(size, seed), {}, signal)).address;
const has = async (address: Address): Promise<boolean> => (await cache.open(address, signal)) !== undefined;

test('the least recently used objects are evicted first, and the bound holds after each put', async () => {
  const first = await put(30 * KIB, 1);
  const large = await put(150 * KIB, 2);
  const third = await put(30 * KIB, 3);
  assert.ok(await has(first));
  const fourth = await put(100 * KIB, 4);
  assert.ok(cache.bytes <= 256 * KIB);
  assert.deepEqual(evicted, [large]);
  assert.deepEqual(await Promise.all([first, large, third, fourth].map(has)), [true, false, true, true]);
  await assert.rejects(put(257 * KIB, 5), (error) => isRonError(error, 'payload_too_large'));
});

test('after a restart the sizes are known, and the oldest put is evicted first', async () => {
  const addresses = [await put(60 * KIB, 1), await put(150 * KIB, 2)];
  const { bytes } = cache;
  await cache.close();
  await volume.close();
  await open();
  assert.equal(cache.bytes, bytes);
  await put(100 * KIB, 3);
  assert.ok(evicted.length > 0 && evicted.every((address) => addresses.includes(address)));
  assert.ok(cache.bytes <= 256 * KIB);
});

test('long use leaves neither segments nor index entries behind', async () => {
  for (let seed = 0; seed < 300; seed++) await put(20 * KIB, seed);
  assert.ok(cache.bytes <= 256 * KIB);
  assert.ok(volume.stats().used_bytes < 4 * 256 * KIB, `${volume.stats().used_bytes} bytes are on disk`);
  await volume.inventory('object', undefined, 1);
  const { entries } = await volume.index.page('object', undefined, 1000);
  assert.ok(entries.length < 100, `${entries.length} entries of ${evicted.length} evicted objects`);
});

test('an object that is put with durability later is visible soon, and counts at once', async () => {
  const { address } = await cache.put(bodyOf(10 * KIB, 1), { durability: 'later' }, signal);
  assert.equal(cache.bytes, 10 * KIB);
  await eventually('the object is visible', () => has(address));
  await cache.put(bodyOf(200 * KIB, 2), {}, signal);
  for (let seed = 3; seed < 8; seed++) await cache.put(bodyOf(60 * KIB, seed), { durability: 'later' }, signal);
  assert.ok(cache.bytes <= 256 * KIB && evicted.includes(address));
});
