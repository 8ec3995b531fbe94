/** Everything that works on one volume works on a set of them, unchanged. */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { rmSync } from 'node:fs';
import { test } from 'node:test';
import { Compactor, ObjectStore, Uploads } from '@ron/cas';
import { TokenBucket } from '@ron/kernel';
import type { Address } from '@ron/proto';
import { Directories } from '../src/testing/directories.ts';

const { signal } = new AbortController();
const SIX = ['a', 'b', 'c', 'd', 'e', 'f'];

async function put(store: ObjectStore, bytes: Uint8Array): Promise<Address> {
  const writer = store.writer();
  await writer.write(bytes, signal);
  return (await writer.finish({}, signal)).address;
}

async function get(store: ObjectStore, address: Address): Promise<Buffer> {
  const object = await store.open(address, signal);
  assert.ok(object, `${address} is here`);
  const parts: Buffer[] = [];
  for await (const batch of object.read(0, object.size, signal)) parts.push(Buffer.concat(batch));
  return Buffer.concat(parts);
}

test('objects of all sizes are read back, also without two of six directories', async () => {
  using directories = new Directories();
  const bodies = [0, 1, 65_536, 65_537, 3_000_000].map((size) => randomBytes(size));
  const addresses: Address[] = [];
  {
    await using set = await directories.open(SIX, { replication_factor: 3 });
    const store = new ObjectStore({ volume: set, cache_bytes: 0 });
    for (const body of bodies) addresses.push(await put(store, body));
    for (const [index, address] of addresses.entries()) assert.deepEqual(await get(store, address), bodies[index]);
  }
  for (const gone of ['b', 'e']) rmSync(directories.dir(gone), { recursive: true });
  await using set = await directories.open(SIX, { replication_factor: 3 });
  const store = new ObjectStore({ volume: set, cache_bytes: 0 });
  for (const [index, address] of addresses.entries()) assert.deepEqual(await get(store, address), bodies[index]);
});

test('compaction gives back the room of removed objects on every volume, and keeps the others', async () => {
  using directories = new Directories();
  await using set = await directories.open(SIX, { replication_factor: 2 });
  const store = new ObjectStore({ volume: set, cache_bytes: 0 });
  const kept = randomBytes(2_000_000);
  const address = await put(store, kept);
  const gone = await put(store, randomBytes(4_000_000));
  await store.remove(gone, signal);
  const before_bytes = set.stats().used_bytes;
  const bucket = new TokenBucket('test', { rate_per_s: 1e12, burst: 2 ** 32 });
  const compactor = new Compactor({ store, uploads: undefined, seal_bytes_min: 0, live_ratio: 1, bucket });
  const report = await compactor.run(signal);
  assert.ok(report.isComplete && report.freed_bytes > 7_000_000, `${report.freed_bytes} bytes were freed`);
  assert.ok(set.stats().used_bytes < before_bytes - 7_000_000);
  assert.deepEqual(await get(store, address), kept);
});

test('uploads go on over a restart', async () => {
  using directories = new Directories();
  const dir = directories.dir('uploads');
  const body = randomBytes(1_000_000);
  let id: string;
  {
    await using set = await directories.open(SIX, { replication_factor: 2 });
    const store = new ObjectStore({ volume: set, cache_bytes: 0 });
    await using uploads = await Uploads.open({ store, dir });
    ({ id } = await uploads.create({ size: body.length }));
    await uploads.append({ id, offset: 0, body: stream(body.subarray(0, 400_000)), signal });
  }
  await using set = await directories.open(SIX, { replication_factor: 2 });
  const store = new ObjectStore({ volume: set, cache_bytes: 0 });
  await using uploads = await Uploads.open({ store, dir });
  const { offset } = await uploads.settle(id, signal);
  assert.equal(offset, 400_000);
  const { address } = await uploads.append({ id, offset, body: stream(body.subarray(offset)), signal });
  assert.deepEqual(await get(store, address!), body);
});

async function* stream(bytes: Uint8Array): AsyncGenerator<Uint8Array, void, void> {
  yield bytes;
}
