/** The index is a cache of the log: a damaged, lost or old one is rebuilt, and no record is lost or reported as damaged. */
import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, test } from 'node:test';
import { blake3 } from '@napi-rs/blake-hash';
import { isRonError, TokenBucket } from '@ron/kernel';
import { DiskGate, gatedFileSystem, realFileSystem, type File, type FileSystem } from '@ron/log';
import { addressBytes, type Address } from '@ron/proto';
import { Compactor } from '../compaction/compactor.ts';
import { ENTRY_BYTES } from './entry.ts';
import { LocalVolume, type LocalVolumeInit } from '../volume/local-volume.ts';
import { ObjectStore } from '../objects/object-store.ts';
import { RecordType } from '../volume/record-types.ts';
import type { DamagedRecord } from '../volume/volume.ts';
import { eventually } from '@ron/testkit';

const { signal } = new AbortController();
let dir: string;
let volume: LocalVolume;
let store: ObjectStore;
let damaged: DamagedRecord[];
let rebuilds: string[];

beforeEach(async () => {
  dir = mkdtempSync(join(tmpdir(), 'ron-damaged-index-'));
  damaged = [];
  rebuilds = [];
  await open();
});
afterEach(async () => {
  await volume.close();
  rmSync(dir, { recursive: true });
});

async function open(init: Partial<LocalVolumeInit> = {}): Promise<void> {
  volume = await LocalVolume.open({
    dir,
    signal,
    segment_bytes: 256 * 1024,
    flush_after_ms: Infinity,
    onDamage: (record) => damaged.push(record),
    onRebuild: (why) => rebuilds.push(why),
    ...init,
  });
  store = new ObjectStore({ volume, cache_bytes: 0 });
}

const bodyOf = (seed: number): Buffer => Buffer.alloc(500 + seed, `body ${seed} `);

async function get(address: Address): Promise<Buffer> {
  const object = await store.open(address, signal);
  assert.ok(object, `${address} is here`);
  const parts: Uint8Array[] = [];
  for await (const part of object.read(0, object.size, signal)) parts.push(Buffer.concat(part));
  return Buffer.concat(parts);
}

/** Objects, a pin and a removal. */
async function fill(): Promise<{ kept: Map<Address, Buffer>; pinned: Address; removed: Address }> {
  const kept = new Map<Address, Buffer>();
  for (let seed = 0; seed < 40; seed++) kept.set((await store.put(bodyOf(seed), {}, signal)).address, bodyOf(seed));
  const [pinned, removed] = [...kept.keys()] as [Address, Address];
  await store.pin(pinned, signal);
  await store.remove(removed, signal);
  kept.delete(removed);
  return { kept, pinned, removed };
}

async function assertAll({ kept, pinned, removed }: Awaited<ReturnType<typeof fill>>): Promise<void> {
  for (const [address, bytes] of kept) assert.deepEqual(await get(address), bytes);
  assert.ok(store.isPinned(pinned));
  assert.ok(!store.has(removed) && volume.wasRemoved(addressBytes(removed)));
  assert.deepEqual(damaged, []);
}

const runs = (): string[] => readdirSync(join(dir, 'index')).map((name) => join(dir, 'index', name));

function flip(path: string, at: (bytes: number) => number): void {
  const bytes = readFileSync(path);
  bytes[at(bytes.length)]! ^= 4;
  writeFileSync(path, bytes);
}

const SECTIONS: Record<string, (bytes: number) => number> = {
  footer: (bytes) => bytes - 40,
  trailer: (bytes) => bytes - 4,
  'part in memory': () => 82 * ENTRY_BYTES,
};

for (const [section, at] of Object.entries(SECTIONS)) {
  test(`an index whose ${section} is damaged is rebuilt at open`, async () => {
    const filled = await fill();
    await volume.close();
    assert.equal(runs().length, 1);
    flip(runs()[0]!, at);
    await open();
    assert.match(rebuilds.join(), /damaged/);
    await assertAll(filled);
  });
}

test('an index that is lost, as a whole or in part, is rebuilt at open', async () => {
  const filled = await fill();
  await volume.close();
  rmSync(join(dir, 'index'), { recursive: true });
  await open();
  await assertAll(filled);
  const more = await store.put(bodyOf(99), {}, signal);
  await volume.close();
  rmSync(runs().toSorted()[0]!);
  await open();
  assert.match(rebuilds.join(), /missing/);
  await assertAll(filled);
  assert.deepEqual(await get(more.address), bodyOf(99));
});

test('an index of an earlier version is removed and rebuilt', async () => {
  const filled = await fill();
  await volume.close();
  rmSync(join(dir, 'index'), { recursive: true });
  mkdirSync(join(dir, 'index'));
  for (const name of ['data.mdb', 'lock.mdb']) writeFileSync(join(dir, 'index', name), 'LMDB');
  await open();
  assert.match(rebuilds.join(), /earlier version/);
  assert.deepEqual(
    runs().filter((path) => path.endsWith('.mdb')),
    [],
  );
  await assertAll(filled);
});

test('damage that a read finds is reported, and the index is rebuilt while other requests succeed', async () => {
  const filled = await fill();
  await volume.inventory('object', undefined, 1);
  // The first entry of the first table: a content.
  const [listed] = await volume.inventory('content', undefined, 1);
  await volume.inventory('object', undefined, 1);
  flip(runs()[0]!, () => 35);
  const other = [...filled.kept.keys()].find((address) => Buffer.compare(addressBytes(address), listed!.id) !== 0)!;
  await assert.rejects(volume.get('content', listed!.id, signal), (error) => isRonError(error, 'not_ready'));
  const late = await store.put(bodyOf(200), {}, signal);
  assert.deepEqual(await get(other), filled.kept.get(other));
  const found = (): Promise<unknown> => volume.get('content', listed!.id, signal).catch(() => undefined);
  await eventually('the index is rebuilt', async () => (await found()) !== undefined);
  assert.equal(rebuilds.length, 1);
  await assertAll(filled);
  assert.deepEqual(await get(late.address), bodyOf(200));
  // The next start uses the rebuilt index.
  await volume.close();
  await open();
  assert.equal(rebuilds.length, 1);
  await assertAll(filled);
  assert.deepEqual(await get(late.address), bodyOf(200));
});

test('damage ends a compaction without losing a record, and the next run succeeds', async () => {
  const filled = await fill();
  await volume.inventory('object', undefined, 1);
  flip(runs()[0]!, () => 35);
  const bucket = new TokenBucket('test', { rate_per_s: 2 ** 32, burst: 2 ** 32 });
  const compactor = new Compactor({ store, uploads: undefined, bucket, seal_bytes_min: 1, live_ratio: 1.1 });
  await assert.rejects(compactor.run(signal), (error) => isRonError(error, 'not_ready'));
  const run = (): Promise<unknown> => compactor.run(signal).catch(() => undefined);
  await eventually('a compaction succeeds', async () => (await run()) !== undefined);
  assert.equal(rebuilds.length, 1);
  for (const [address, bytes] of filled.kept) assert.deepEqual(await get(address), bytes);
  assert.deepEqual(damaged, []);
});

/** A file system whose reads of the index never end while `isHung`, and that never answers without waiting. */
function hangingFiles(state: { isHung: boolean }): FileSystem {
  const wrap = (file: File, path: string): File => ({
    write: (buffers, position) => file.write(buffers, position),
    read: (into, length, position) =>
      state.isHung && path.includes('/index/') ? new Promise(() => undefined) : file.read(into, length, position),
    sync: () => file.sync(),
    truncate: (bytes) => file.truncate(bytes),
    size: () => file.size(),
    close: () => file.close(),
  });
  return Object.assign(Object.create(realFileSystem) as FileSystem, {
    create: async (path: string) => wrap(await realFileSystem.create(path), path),
    open: async (path: string, access: 'read' | 'write') => wrap(await realFileSystem.open(path, access), path),
  });
}

test('a read of the index that never answers fails by its deadline, and blocks nothing else', async () => {
  const { kept } = await fill();
  await volume.close();
  const state = { isHung: false };
  const gate = new DiskGate({ calls_max: 4, late_ms: 100 });
  await open({ fs: gatedFileSystem(hangingFiles(state), gate) });
  const [address] = kept.keys();
  state.isHung = true;
  const began = performance.now();
  await assert.rejects(volume.get('object', addressBytes(address!), signal), (error) => isRonError(error, 'not_ready'));
  assert.ok(performance.now() - began < 2000);
  // Answers from memory need no disk.
  assert.ok(volume.has('object', addressBytes(address!)) && volume.isDurable('object', addressBytes(address!)));
  assert.ok(!volume.has('object', blake3(Buffer.from('never stored'))));
  assert.equal(volume.typeOf('object', addressBytes(address!)), RecordType.object);
  assert.deepEqual(damaged, []);
});
