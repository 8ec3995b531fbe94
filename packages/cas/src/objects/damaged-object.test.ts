/** An object whose own record is damaged: it is neither readable nor removed, and its chunks are kept. */
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, test } from 'node:test';
import { blake3 } from '@napi-rs/blake-hash';
import { isRonError, TokenBucket } from '@ron/kernel';
import { addressBytes, type Address } from '@ron/proto';
import { Compactor, type CompactionReport } from '../compaction/compactor.ts';
import { LocalVolume } from '../volume/local-volume.ts';
import { ObjectStore } from './object-store.ts';
import type { DamagedRecord } from '../volume/volume.ts';

const signal = new AbortController().signal;
const CHUNK = 64 * 1024;
let dir: string;
let volume: LocalVolume;
let store: ObjectStore;
let damaged: DamagedRecord[];

beforeEach(async () => {
  dir = mkdtempSync(join(tmpdir(), 'ron-damaged-'));
  damaged = [];
  await open();
});
afterEach(async () => {
  await volume.close();
  rmSync(dir, { recursive: true });
});

async function open(): Promise<void> {
  const onDamage = (record: DamagedRecord): unknown => damaged.push(record);
  volume = await LocalVolume.open({ dir, signal, segment_bytes: 8 * CHUNK, onDamage });
  store = new ObjectStore({ volume, batch_bytes: 1, cache_bytes: 0 });
}

async function reopen(): Promise<void> {
  await volume.close();
  await open();
}

const content = (size: number, seed: number): Buffer => {
  const bytes = Buffer.allocUnsafe(size);
  for (let at = 0, x = seed; at < size; at++) bytes[at] = (x = Math.imul(x, 1_103_515_245) + 12_345) >>> 16;
  return bytes;
};

const put = async (bytes: Uint8Array): Promise<Address> => (await store.put(bytes, {}, signal)).address;

async function get(address: Address): Promise<Buffer> {
  const object = await store.open(address, signal);
  assert.ok(object, `${address} is here`);
  const parts: Uint8Array[] = [];
  for await (const part of object.read(0, object.size, signal)) parts.push(Buffer.concat(part));
  return Buffer.concat(parts);
}

/** Flips a bit of the object's own record on disk. */
async function harm(address: Address): Promise<void> {
  const { segment, offset } = (await volume.index.get('object', addressBytes(address)))!;
  const path = volume.log.files.path(segment);
  const bytes = readFileSync(path);
  bytes[offset + 64 + 20]! ^= 1;
  writeFileSync(path, bytes);
}

function compact(): Promise<CompactionReport> {
  const bucket = new TokenBucket('test', { rate_per_s: 2 ** 32, burst: 2 ** 32 });
  return new Compactor({ store, uploads: undefined, bucket, seal_bytes_min: 1, live_ratio: 1.1 }).run(signal);
}

const isIntegrity = (error: unknown): boolean => isRonError(error, 'integrity');
const BODY = content(12 * CHUNK, 1);

const chunksHeld = (): number =>
  Array.from({ length: 12 }, (_, at) => blake3(BODY.subarray(at * CHUNK, (at + 1) * CHUNK))).filter((id) =>
    volume.has('content', id),
  ).length;

test('chunks of a damaged manifest survive compactions and restarts until the object is put again', async () => {
  const address = await put(BODY);
  await put(content(9 * CHUNK, 2));
  await harm(address);
  for (let round = 0; round < 3; round++) {
    const report = await compact();
    assert.deepEqual(report.unreadable, [address]);
    assert.equal(report.isComplete, false);
    assert.equal(chunksHeld(), 12);
    await assert.rejects(store.open(address, signal), isIntegrity);
    await reopen();
  }
  assert.equal(damaged.length, 1, 'it is reported once');
  await put(BODY);
  assert.deepEqual(await get(address), BODY);
  assert.equal((await compact()).isComplete, true);
  assert.deepEqual(await get(address), BODY);
});

test('a damaged object does not count as a copy, and can be removed with its chunks', async () => {
  const address = await put(BODY);
  const id = addressBytes(address);
  await harm(address);
  await assert.rejects(store.open(address, signal), isIntegrity);
  await assert.rejects(store.open(address, signal), isIntegrity);
  assert.ok(store.has(address) && !volume.isDurable('object', id) && !volume.wasRemoved(id));
  assert.deepEqual(
    (await volume.inventory('object', undefined, 10)).map((held) => Buffer.from(held.id)),
    [Buffer.from(id)],
  );
  assert.equal(await volume.listIds('object', undefined, Buffer.alloc(320)), 0);
  await store.remove(address, signal);
  assert.equal(await store.open(address, signal), undefined);
  assert.equal((await compact()).isComplete, true);
  assert.equal(chunksHeld(), 0);
});
