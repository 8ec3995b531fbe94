/** Compaction in a real directory: reclaimed records, kept records, and the report. */
import assert from 'node:assert/strict';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, test } from 'node:test';
import { blake3 } from '@napi-rs/blake-hash';
import { installSched, isRonError, realSched, TokenBucket } from '@ron/kernel';
import { formatAddress, type Address } from '@ron/proto';
import { Compactor, type CompactorInit } from './compactor.ts';
import { LocalVolume } from '../volume/local-volume.ts';
import { memoryFiles } from '../index/memory-files.ts';
import { MemoryVolume } from '../volume/memory-volume.ts';
import { ObjectStore, type ObjectStoreInit } from '../objects/object-store.ts';
import { RecordType } from '../volume/record-types.ts';
import type { DamagedRecord, NewRecord, Volume } from '../volume/volume.ts';

const signal = new AbortController().signal;
const CHUNK = 64 * 1024;
const SEGMENT_BYTES = 8 * CHUNK;
let dir: string;
let volume: LocalVolume | undefined;
let damaged: DamagedRecord[];

beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'ron-compact-'));
  damaged = [];
});
afterEach(async () => {
  await volume?.close();
  volume = undefined;
  rmSync(dir, { recursive: true });
});

async function open(init: Partial<ObjectStoreInit> = {}): Promise<ObjectStore> {
  await volume?.close();
  volume = await LocalVolume.open({
    dir,
    signal,
    segment_bytes: SEGMENT_BYTES,
    onDamage: (each) => damaged.push(each),
  });
  return new ObjectStore({ volume, batch_bytes: 1, cache_bytes: 0, ...init });
}

const fast = (): TokenBucket => new TokenBucket('test', { rate_per_s: 2 ** 32, burst: 2 ** 32 });

const compactorOf = (store: ObjectStore, init: Partial<CompactorInit> = {}): Compactor =>
  new Compactor({ store, uploads: undefined, bucket: fast(), seal_bytes_min: 1, ...init });

const content = (size: number, seed: number): Buffer => {
  const bytes = Buffer.allocUnsafe(size);
  for (let at = 0, x = seed; at < size; at++) bytes[at] = (x = Math.imul(x, 1_103_515_245) + 12_345) >>> 16;
  return bytes;
};

async function put(store: ObjectStore, bytes: Uint8Array): Promise<Address> {
  const writer = store.writer();
  await writer.write(bytes, signal);
  return (await writer.finish({}, signal)).address;
}

async function get(store: ObjectStore, address: Address): Promise<Buffer> {
  const object = await store.open(address, signal);
  assert.ok(object, `${address} is here`);
  const parts: Uint8Array[] = [];
  for await (const part of object.read(0, object.size, signal)) parts.push(Buffer.concat(part));
  return Buffer.concat(parts);
}

/** Kept objects between removed ones. */
async function fill(store: ObjectStore): Promise<{ kept: Map<Address, Buffer>; removed: Address[] }> {
  const kept = new Map<Address, Buffer>();
  const removed: Address[] = [];
  for (let seed = 1; seed <= 8; seed++) {
    const isKept = seed % 4 === 0;
    for (const size of [1000, CHUNK * 3 + 5]) {
      const bytes = content(size, seed * 10 + (size % 7));
      const address = await put(store, bytes);
      if (isKept) kept.set(address, bytes);
      else removed.push(address);
    }
  }
  for (const address of removed) await store.remove(address, signal);
  return { kept, removed };
}

async function assertAll(store: ObjectStore, kept: Map<Address, Buffer>, removed: readonly Address[]): Promise<void> {
  for (const [address, bytes] of kept) assert.deepEqual(await get(store, address), bytes);
  for (const address of removed) assert.equal(await store.open(address, signal), undefined);
}

test('the space of removed objects is reclaimed; others are intact, even after a restart without the index', async () => {
  let store = await open();
  const { kept, removed } = await fill(store);
  await store.pin([...kept.keys()][0]!, signal);
  const before_bytes = volume!.stats().used_bytes;
  const report = await compactorOf(store).run(signal);
  assert.ok(report.segments > 0 && report.freed_bytes > before_bytes / 2, JSON.stringify(report));
  assert.equal(volume!.stats().used_bytes, before_bytes - report.freed_bytes);
  await assertAll(store, kept, removed);
  store = await open();
  await assertAll(store, kept, removed);
  await volume!.close();
  volume = undefined;
  rmSync(join(dir, 'index'), { recursive: true });
  store = await open();
  await assertAll(store, kept, removed);
  assert.ok(store.isPinned([...kept.keys()][0]!));
  // A second run has nothing to do.
  assert.equal((await compactorOf(store).run(signal)).freed_bytes, 0);
});

test('a chunk that another object references stays, and so does the content of a small object', async () => {
  const store = await open();
  const shared = content(CHUNK, 1);
  const small = await put(store, shared);
  const first = await put(store, Buffer.concat([shared, content(2 * CHUNK, 2)]));
  const bytes = Buffer.concat([content(CHUNK, 3), shared, content(CHUNK, 2)]);
  const second = await put(store, bytes);
  await store.remove(small, signal);
  await store.remove(first, signal);
  await compactorOf(store, { live_ratio: 1 }).run(signal);
  assert.deepEqual(await get(store, second), bytes);
  assert.ok(!store.has(small) && !store.has(first));
  // The content that was put under its own address is an object again.
  assert.equal(await put(store, shared), small);
  assert.deepEqual(await get(store, small), shared);
});

test('records of unknown types are kept', async () => {
  let store = await open();
  const { kept, removed } = await fill(store);
  const id = blake3(Buffer.from('from a later version'));
  await volume!.put([{ type: 200, id, payload: Buffer.from('later') }], signal);
  await compactorOf(store, { live_ratio: 1 }).run(signal);
  volume!.log.rotate();
  await compactorOf(store, { live_ratio: 1 }).run(signal);
  store = await open();
  await assertAll(store, kept, removed);
  const segments = readdirSync(join(dir, 'segments')).map((name) => readFileSync(join(dir, 'segments', name)));
  assert.ok(segments.some((bytes) => bytes.includes('later')));
});

/** Flips a byte of a segment at the first occurrence of `needle`, plus `offset`. */
function flip(needle: Uint8Array, offset: number): void {
  for (const name of readdirSync(join(dir, 'segments'))) {
    const path = join(dir, 'segments', name);
    const bytes = readFileSync(path);
    const at = bytes.indexOf(needle);
    if (at < 0) continue;
    bytes[at + offset]! ^= 1;
    writeFileSync(path, bytes);
    return;
  }
  assert.fail('the needle was not found');
}

test('a damaged record is quarantined before its segment is removed, and its object is not served', async () => {
  const store = await open();
  const { kept, removed } = await fill(store);
  const [[small, body]] = [...kept] as [[Address, Buffer]];
  flip(body.subarray(0, 32), 40);
  await compactorOf(store).run(signal);
  assert.equal(damaged.length, 1);
  assert.match(readdirSync(join(dir, 'quarantine')).join(), /gap-/);
  await assert.rejects(store.open(small, signal), (error) => isRonError(error, 'integrity'));
  kept.delete(small);
  await assertAll(store, kept, removed);
});

test('damaged records of a pin and a removal are rewritten', async () => {
  let store = await open();
  const { kept, removed } = await fill(store);
  const pinned = [...kept.keys()][1]!;
  await store.pin(pinned, signal);
  const at = await volume!.index.get('pin', Buffer.from(pinned.slice(3), 'hex'));
  const gone = await volume!.index.get('object', Buffer.from(removed[0]!.slice(3), 'hex'));
  for (const place of [at!, gone!]) {
    const path = volume!.log.files.path(place.segment);
    const bytes = readFileSync(path);
    bytes[place.offset]! ^= 1;
    writeFileSync(path, bytes);
  }
  await compactorOf(store, { live_ratio: 1.1, seal_bytes_min: 0 }).run(signal);
  await volume!.close();
  volume = undefined;
  rmSync(join(dir, 'index'), { recursive: true });
  store = await open();
  await assertAll(store, kept, removed);
  assert.ok(store.isPinned(pinned));
});

test('while a manifest is damaged no content is reclaimed', async () => {
  const store = await open();
  const { kept, removed } = await fill(store);
  const [address, bytes] = [...kept][1] as [Address, Buffer];
  const chunks = [0, 1, 2, 3].map((at) => blake3(bytes.subarray(at * CHUNK, (at + 1) * CHUNK)));
  const garbage = volume!.stats().used_bytes;
  // The page begins with the id of the first chunk, which the page's own record and no other holds at its payload.
  await volume!.inventory('content', undefined, 1);
  const page = (await volume!.index.get('content', await pageIdOf(bytes)))!;
  const path = volume!.log.files.path(page.segment);
  const segment = readFileSync(path);
  segment[page.offset + 70]! ^= 1;
  writeFileSync(path, segment);
  const report = await compactorOf(store).run(signal);
  assert.deepEqual(report.unreadable, [address]);
  for (const id of chunks) assert.ok(volume!.has('content', id));
  assert.ok(volume!.stats().used_bytes > garbage / 2);
  // Compaction continues once the object is removed or put again.
  await put(store, bytes);
  const next = await compactorOf(store).run(signal);
  assert.deepEqual(next.unreadable, []);
  assert.ok(next.freed_bytes > 0);
  await assertAll(store, kept, removed);
});

/** The id of the only page of an object's manifest. */
async function pageIdOf(bytes: Buffer): Promise<Uint8Array> {
  const { index } = volume!;
  for (const [id, place] of (await index.page('content', undefined, 10_000)).entries) {
    if (place.type === 3 && place.payload_bytes === 64 * Math.ceil(bytes.length / CHUNK)) {
      const path = volume!.log.files.path(place.segment);
      const first = readFileSync(path).subarray(place.offset + 64, place.offset + 96);
      if (first.equals(blake3(bytes.subarray(0, CHUNK)))) return Uint8Array.from(id);
    }
  }
  return assert.fail('no page');
}

test('a cancelled run leaves everything intact, and the next one completes it', async () => {
  const store = await open();
  const { kept, removed } = await fill(store);
  const cancel = new AbortController();
  const bucket = fast();
  const compactor = compactorOf(store, { bucket, live_ratio: 1 });
  const take = bucket.take.bind(bucket);
  bucket.take = async (count, each) => {
    if (compactor.report.segments === 2) cancel.abort(new Error('enough'));
    await take(count, each);
  };
  await assert.rejects(compactor.run(cancel.signal), /enough/);
  await assertAll(store, kept, removed);
  const report = await compactorOf(store, { live_ratio: 1 }).run(signal);
  assert.ok(report.freed_bytes > 0);
  await assertAll(store, kept, removed);
});

test('one run at a time, even by two compactors', async () => {
  const store = await open();
  const { kept, removed } = await fill(store);
  const compactor = compactorOf(store);
  const first = compactor.run(signal);
  await assert.rejects(compactor.run(signal), (error) => isRonError(error, 'conflict'));
  assert.notEqual(compactor.report.phase, 'idle');
  await assert.rejects(compactorOf(store).run(signal), (error) => isRonError(error, 'conflict'));
  assert.ok((await first).freed_bytes > 0);
  await assertAll(store, kept, removed);
  await compactor.run(signal);
});

test('compaction is paced', async () => {
  const store = await open();
  await fill(store);
  let taken_bytes = 0;
  const onTaken = (count: number): void => void (taken_bytes += count);
  const bucket = new TokenBucket('metered', { rate_per_s: 2 ** 32, burst: CHUNK, onTaken });
  const { moved_bytes } = await compactorOf(store, { bucket }).run(signal);
  assert.ok(moved_bytes > 0 && taken_bytes >= 2 * moved_bytes, `${taken_bytes} for ${moved_bytes} moved`);
});

test('the active segment is not rewritten unless it wastes enough', async () => {
  const store = await open();
  const address = await put(store, content(2 * CHUNK, 1));
  await store.remove(address, signal);
  const lazy = await compactorOf(store, { seal_bytes_min: CHUNK * 10 }).run(signal);
  assert.equal(lazy.freed_bytes, 0);
  const eager = await compactorOf(store, { seal_bytes_min: CHUNK }).run(signal);
  assert.ok(eager.freed_bytes >= 2 * CHUNK);
});

/** Runs `work` with a clock that is `ahead_ms` ahead. */
async function later<T>(ahead_ms: number, work: () => Promise<T>): Promise<T> {
  const previous = installSched({ ...realSched, wall_ms: () => Date.now() + ahead_ms });
  try {
    return await work();
  } finally {
    installSched(previous);
  }
}

const HOUR_MS = 3_600_000;
const STORES: Record<string, () => Promise<ObjectStore>> = {
  'a directory': () => open({ lease_ms: HOUR_MS }),
  memory: () => {
    const memory: Volume = new MemoryVolume({ bytes_max: 8 << 20 });
    return Promise.resolve(new ObjectStore({ volume: memory, lease_ms: HOUR_MS, cache_bytes: 1 << 20 }));
  },
};

for (const [where, make] of Object.entries(STORES)) {
  test(`in ${where}, an unpinned object is removed when its lease expires, unless it was put again`, async () => {
    const store = await make();
    const bodies = [1, 2, 3].map((seed) => content(CHUNK * 2, seed));
    const smalls = [4, 5, 6].map((seed) => content(500, seed));
    const addresses: Address[] = [];
    for (const bytes of [...bodies, ...smalls]) addresses.push(await put(store, bytes));
    const [pinned, renewed, left, pinnedSmall, renewedSmall, leftSmall] = addresses;
    await store.pin(pinned!, signal);
    await store.pin(pinnedSmall!, signal);
    assert.ok(await store.open(leftSmall!, signal));
    const compactor = compactorOf(store, { live_ratio: 1 });
    assert.equal((await compactor.run(signal)).expired, 0);
    await later(0.9 * HOUR_MS, async () => {
      await put(store, bodies[1]!);
      await put(store, smalls[1]!);
      assert.equal((await compactor.run(signal)).expired, 0);
    });
    await later(1.1 * HOUR_MS, async () => {
      const report = await compactor.run(signal);
      assert.equal(report.expired, 2);
      assert.ok(report.freed_bytes > 0);
    });
    for (const address of [left!, leftSmall!]) assert.equal(await store.open(address, signal), undefined);
    for (const address of [pinned!, renewed!, pinnedSmall!, renewedSmall!]) await get(store, address);
    await store.unpin(pinned!, signal);
    await later(2.5 * HOUR_MS, async () => assert.equal((await compactor.run(signal)).expired, 3));
    await store.volume.close();
  });
}

test('memory is reclaimed', async () => {
  const store = new ObjectStore({ volume: new MemoryVolume({ bytes_max: 8 << 20 }), cache_bytes: 0 });
  const { kept, removed } = await fill(store);
  const before_bytes = store.volume.stats().used_bytes;
  const report = await compactorOf(store).run(signal);
  assert.ok(report.freed_bytes > before_bytes / 2);
  assert.equal(store.volume.stats().used_bytes, before_bytes - report.freed_bytes);
  await assertAll(store, kept, removed);
  for (const address of kept.keys()) await store.remove(address, signal);
  await compactorOf(store).run(signal);
  assert.equal(store.volume.stats().used_bytes, 0);
});

test('contents of an open writer stay, and those of an aborted one are reclaimed', async () => {
  const store = await open();
  const old = content(3 * CHUNK, 1);
  await store.remove(await put(store, old), signal);
  const writer = store.writer();
  await writer.write(Buffer.concat([old, content(10, 2)]), signal);
  await compactorOf(store).run(signal);
  const { address } = await writer.finish({}, signal);
  assert.deepEqual(await get(store, address), Buffer.concat([old, content(10, 2)]));
  const abandoned = store.writer();
  await abandoned.write(content(4 * CHUNK, 3), signal);
  abandoned.abort();
  assert.ok((await compactorOf(store, { live_ratio: 1 }).run(signal)).freed_bytes > 0);
  assert.ok(!volume!.has('content', blake3(content(CHUNK, 3))));
  assert.deepEqual(formatAddress(blake3(Buffer.concat([old, content(10, 2)]))), address);
});

test('a segment of many small records is rewritten in small steps: puts succeed meanwhile', async () => {
  volume = await LocalVolume.open({ dir, signal, flush_after_ms: Infinity, indexFs: memoryFiles() });
  const records = (from: number, count: number): NewRecord[] =>
    Array.from({ length: count }, (_, index) => {
      const payload = Buffer.from(`record ${from + index}`);
      return { type: RecordType.chunk, id: blake3(payload), payload };
    });
  for (let from = 0; from < 140_000; from += 10_000) await volume.put(records(from, 10_000), signal, 'later');
  const { index } = volume;
  let pending_max = 0;
  const isNeeded = (): boolean => {
    pending_max = Math.max(pending_max, index.pending);
    return false;
  };
  let turns = 0;
  const pace = async (): Promise<void> => {
    // Concurrent puts.
    if (++turns % 20 === 0) await volume?.put(records(1e6 + turns, 1), signal);
  };
  const { segments } = await volume.reclaim({ isNeeded, pace, live_ratio: 1.1, seal_bytes_min: 0, signal });
  assert.ok(segments === 1 && turns > 100, `${turns} steps`);
  assert.ok(pending_max < 80_000, `${pending_max} entries waited`);
});

test('with little memory for marking, no needed content is reclaimed, and all garbage is in the end', async () => {
  const store = await open();
  const kept = content(40 * CHUNK, 1);
  const address = await put(store, kept);
  for (let seed = 2; seed < 8; seed++) await store.remove(await put(store, content(20 * CHUNK, seed)), signal);
  const contents = async (): Promise<number> => (await volume!.inventory('content', undefined, 1000)).length;
  const before = await contents();
  for (let run = 0; run < 40 && (await contents()) > 45; run++) {
    await compactorOf(store, { live_ratio: 1.1, seal_bytes_min: 0, mark_bytes_max: 64 }).run(signal);
    assert.deepEqual(await get(store, address), kept);
  }
  assert.ok(before > 150 && (await contents()) <= 45, `${await contents()} of ${before} contents are left`);
});
