/** Objects in a real directory that is reopened, damaged and loses its index. */
import assert from 'node:assert/strict';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, test } from 'node:test';
import { blake3 } from '@napi-rs/blake-hash';
import { isRonError } from '@ron/kernel';
import { addressBytes, formatAddress, type Address } from '@ron/proto';
import { verifySlice } from '@ron/simd';
import fc from 'fast-check';
import { LocalVolume } from '../volume/local-volume.ts';
import { ObjectStore } from './object-store.ts';
import type { DamagedRecord } from '../volume/volume.ts';

const signal = new AbortController().signal;
const CHUNK = 64 * 1024;
let dir: string;
let volume: LocalVolume | undefined;
let damaged: DamagedRecord[];
let rebuilds: string[];

beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'ron-store-'));
  damaged = [];
  rebuilds = [];
});
afterEach(async () => {
  await volume?.close();
  volume = undefined;
  rmSync(dir, { recursive: true });
});

async function open(): Promise<ObjectStore> {
  await volume?.close();
  volume = await LocalVolume.open({
    dir,
    signal,
    onDamage: (record) => damaged.push(record),
    onRebuild: (why) => rebuilds.push(why),
  });
  return new ObjectStore({ volume });
}

const content = (size: number, seed = 1): Buffer => {
  const bytes = Buffer.allocUnsafe(size);
  for (let at = 0, x = seed; at < size; at++) bytes[at] = (x = Math.imul(x, 1_103_515_245) + 12_345) >>> 16;
  return bytes;
};

async function put(store: ObjectStore, bytes: Uint8Array, media_type?: string): Promise<Address> {
  const writer = store.writer();
  for (let at = 0; at < bytes.length; at += 50_000) await writer.write(bytes.subarray(at, at + 50_000), signal);
  return (await writer.finish({ media_type }, signal)).address;
}

async function get(store: ObjectStore, address: Address, start = 0, end?: number): Promise<Buffer> {
  const object = await store.open(address, signal);
  assert.ok(object, `${address} is here`);
  const parts: Uint8Array[] = [];
  for await (const part of object.read(start, end ?? object.size, signal)) parts.push(Buffer.concat(part));
  return Buffer.concat(parts);
}

const SIZES = [0, 1, 1000, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, 3 * CHUNK + 7, 2_000_000];

test('objects of every size have the address of their bytes and survive a restart', async () => {
  let store = await open();
  const stored = new Map<Address, Buffer>();
  for (const size of SIZES) {
    const bytes = content(size, size + 1);
    const address = await put(store, bytes, 'text/x');
    assert.equal(address, `b3:${blake3(bytes).toString('hex')}`);
    stored.set(address, bytes);
  }
  store = await open();
  for (const [address, bytes] of stored) {
    assert.deepEqual(await get(store, address), bytes);
    assert.equal((await store.open(address, signal))!.media_type, 'text/x');
  }
});

test('any range has the right bytes, cold and cached', async () => {
  const store = await open();
  const bytes = content(300_000);
  const address = await put(store, bytes);
  await fc.assert(
    fc.asyncProperty(fc.nat(300_000), fc.nat(300_000), async (a, b) => {
      const [start, end] = a < b ? [a, b] : [b, a];
      assert.deepEqual(await get(store, address, start, end), bytes.subarray(start, end));
    }),
    { numRuns: 60 },
  );
});

test('many objects that are written concurrently, interleaved and twice, are all intact', async () => {
  const store = await open();
  const bodies = Array.from({ length: 6 }, (_, index) => content((9 + 7 * index) * CHUNK + index, index % 3));
  for (let round = 0; round < 2; round++) {
    const writers = bodies.map(() => store.writer());
    for (let at = 0; at < 45 * CHUNK; at += 30_000) {
      await Promise.all(writers.map((writer, index) => writer.write(bodies[index]!.subarray(at, at + 30_000), signal)));
    }
    const written = await Promise.all(writers.map((writer) => writer.finish({}, signal)));
    for (const [index, { address }] of written.entries()) {
      assert.deepEqual(address, formatAddress(blake3(bodies[index]!)));
      assert.deepEqual(await get(store, address), bodies[index]);
    }
  }
});

async function* flat(batches: AsyncIterable<readonly Uint8Array[]>): AsyncGenerator<Uint8Array> {
  for await (const batch of batches) yield* batch;
}

test('a slice proves its range against the address', async () => {
  const store = await open();
  for (const size of [0, 10, CHUNK, 5 * CHUNK + 3]) {
    const bytes = content(size);
    const address = await put(store, bytes);
    const object = (await store.open(address, signal))!;
    const init = { hash: addressBytes(address), offset: 5, length: 200_000, group_bytes: CHUNK };
    const parts: Uint8Array[] = [];
    const slice = flat(object.slice(5, 200_000, signal));
    for await (const part of verifySlice(slice, init)) parts.push(Uint8Array.from(part));
    assert.deepEqual(Buffer.concat(parts), bytes.subarray(5, 200_005), `${size} bytes`);
  }
});

test('bytes that do not match the stated address are refused and leave no object', async () => {
  const store = await open();
  for (const size of [10, 3 * CHUNK]) {
    const writer = store.writer();
    await writer.write(content(size), signal);
    const expected = formatAddress(blake3(Buffer.from('something else')));
    await assert.rejects(writer.finish({ expected }, signal), (error) => isRonError(error, 'address_mismatch'));
    assert.ok(!store.has(expected) && !store.has(formatAddress(blake3(content(size)))));
  }
  assert.equal(store.leases.size, 0);
});

test('two writers of the same object both succeed and store it once', async () => {
  const store = await open();
  const bytes = content(4 * CHUNK);
  const addresses = await Promise.all([put(store, bytes), put(store, bytes)]);
  assert.equal(addresses[0], addresses[1]);
  assert.deepEqual(await get(store, addresses[0]), bytes);
  const writer = store.writer();
  await writer.write(bytes, signal);
  assert.equal((await writer.finish({}, signal)).existed, true);
});

test('a deleted or corrupt index is rebuilt from the segments', async () => {
  let store = await open();
  const bytes = content(5 * CHUNK);
  const large = await put(store, bytes);
  const small = await put(store, Buffer.from('small'));
  await store.remove(await put(store, Buffer.from('removed')), signal);
  await store.pin(small, signal);
  const removed = formatAddress(blake3(Buffer.from('removed')));
  for (const harm of ['delete', 'rubbish', 'truncate'] as const) {
    await volume!.close();
    volume = undefined;
    const runs = harm === 'delete' ? [] : readdirSync(join(dir, 'index')).toSorted();
    const file = join(dir, 'index', runs.at(-1) ?? '');
    if (harm === 'delete') rmSync(join(dir, 'index'), { recursive: true });
    if (harm === 'rubbish') writeFileSync(file, content(50_000));
    if (harm === 'truncate') writeFileSync(file, readFileSync(file).subarray(0, 1000));
    rebuilds = [];
    store = await open();
    assert.equal(rebuilds.length, harm === 'delete' ? 0 : 1, harm);
    assert.deepEqual(await get(store, large), bytes, harm);
    assert.equal((await get(store, small)).toString(), 'small');
    assert.ok(store.isPinned(small) && !store.has(removed));
  }
});

const SEGMENT = (): string => join(dir, 'segments', readdirSync(join(dir, 'segments'))[0]!);

/** Flips a byte of the only segment at the first occurrence of `needle`, plus `offset`. */
function flip(needle: Uint8Array, offset: number): void {
  const bytes = readFileSync(SEGMENT());
  const at = bytes.indexOf(needle);
  assert.ok(at >= 0);
  bytes[at + offset]! ^= 1;
  writeFileSync(SEGMENT(), bytes);
}

test('a flipped byte in a chunk, a small object or a record header is never served; it is quarantined', async () => {
  const bytes = content(3 * CHUNK);
  const small = content(1000, 9);
  const harms: [string, () => void, Buffer][] = [
    ['chunk', () => flip(bytes.subarray(CHUNK, CHUNK + 64), 40), bytes],
    ['small object', () => flip(small.subarray(0, 64), 10), small],
    ['record header', () => flip(blake3(bytes.subarray(CHUNK, 2 * CHUNK)), -10), bytes],
  ];
  for (const [what, harm, body] of harms) {
    rmSync(dir, { recursive: true });
    let store = await open();
    await put(store, bytes);
    await put(store, small);
    await volume!.close();
    volume = undefined;
    harm();
    damaged = [];
    store = await open();
    const address = formatAddress(blake3(body));
    await assert.rejects(get(store, address), (error) => isRonError(error, 'integrity'), what);
    assert.equal(damaged.length, 1, what);
    assert.equal(readdirSync(join(dir, 'quarantine')).length, 1, what);
    // Putting the bytes again repairs the object.
    await store.remove(address, signal).catch(() => undefined);
    await put(store, body);
    assert.deepEqual(await get(store, address), body, what);
    await volume!.close();
    volume = undefined;
  }
});

test('a truncated segment loses only its missing records, and nothing wrong is served', async () => {
  let store = await open();
  const first = await put(store, content(1000, 3));
  const large = await put(store, content(5 * CHUNK, 4));
  await volume!.close();
  volume = undefined;
  const bytes = readFileSync(SEGMENT());
  writeFileSync(SEGMENT(), bytes.subarray(0, 2 * CHUNK));
  store = await open();
  assert.deepEqual(await get(store, first), content(1000, 3));
  assert.equal(await store.open(large, signal), undefined);
  assert.match(rebuilds.join(), /records are lost/);
});

test('concurrent reads of one uncached content are coalesced', async () => {
  let store = await open();
  const address = await put(store, content(3 * CHUNK));
  store = await open();
  const object = (await store.open(address, signal))!;
  let reads = 0;
  const { log } = volume!;
  const [read, readNow] = [log.read.bind(log), log.readNow.bind(log)];
  log.read = (...args) => {
    reads += 1;
    return read(...args);
  };
  log.readNow = (...args) => {
    const record = readNow(...args);
    reads += record === undefined ? 0 : 1;
    return record;
  };
  await Promise.all(Array.from({ length: 20 }, () => object.chunkIds(0, 100, signal)));
  await Promise.all(
    Array.from({ length: 20 }, async () => {
      for await (const part of object.slice(0, 10, signal)) assert.ok(part);
    }),
  );
  // One page of the manifest and one chunk.
  assert.equal(reads, 2);
});

test('peekNow returns a small object, and nothing for a manifest, a removed or a damaged object', async () => {
  const store = await open();
  const small = await put(store, content(500, 1));
  const large = await put(store, content(3 * CHUNK, 2));
  const gone = await put(store, content(600, 3));
  // The first read opens the segment.
  assert.deepEqual(await get(store, small), content(500, 1));
  await store.remove(gone, signal);
  const fresh = new ObjectStore({ volume: volume! });
  const isHere = process.platform === 'linux';
  const now = fresh.peekNow(small)?.whole;
  assert.deepEqual(now && Buffer.from(now), isHere ? content(500, 1) : undefined);
  assert.equal(fresh.peekNow(large), undefined);
  assert.equal(fresh.peekNow(gone), undefined);
  const { index } = volume!;
  index.set('object', addressBytes(small), { ...(await index.get('object', addressBytes(small)))!, offset: 64 });
  assert.equal(new ObjectStore({ volume: volume! }).peekNow(small), undefined, 'another record is at that place');
});

test('bytes of a read stay unchanged after later peeks', async () => {
  const store = await open();
  const [first, second] = [await put(store, content(500, 1)), await put(store, content(500, 2))];
  assert.deepEqual(await get(store, first), content(500, 1));
  const kept = await volume!.get('object', addressBytes(first), signal);
  const now = new ObjectStore({ volume: volume! }).peekNow(second);
  assert.equal(now !== undefined, process.platform === 'linux');
  assert.deepEqual(kept && Buffer.from(kept.payload), content(500, 1));
});

test('putting bytes again repairs a damaged copy, of small objects and of chunks', async () => {
  let store = await open();
  const [small, large] = [content(3000, 7), content(5 * CHUNK, 8)];
  const addresses = [await put(store, small), await put(store, large)];
  const { files } = volume!.log;
  const path = files.path(files.numbers()[0]!);
  await volume!.close();
  const segment = readFileSync(path);
  // A byte in the middle of the small object, and one in a chunk of the large one.
  for (const bytes of [small, large.subarray(2 * CHUNK, 3 * CHUNK)]) segment[segment.indexOf(bytes) + 1000]! ^= 1;
  writeFileSync(path, segment);
  store = await open();
  assert.deepEqual([await put(store, small), await put(store, large)], addresses);
  assert.deepEqual(await get(store, addresses[0]!), small);
  assert.deepEqual(await get(store, addresses[1]!), large);
});

test('a reader that leaves does not abort other readers', async () => {
  let store = await open();
  const bytes = content(4 * CHUNK, 5);
  const address = await put(store, bytes);
  store = await open();
  const object = (await store.open(address, signal))!;
  const held = Promise.withResolvers<void>();
  const volumeGet = volume!.get.bind(volume);
  volume!.get = async (...args) => {
    await held.promise;
    return await volumeGet(...args);
  };
  const leaving = new AbortController();
  const first = object.read(0, object.size, leaving.signal).next();
  const second = object.read(0, object.size, signal).next();
  leaving.abort(new Error('it left'));
  await assert.rejects(first, /it left/);
  held.resolve();
  const { value } = await second;
  assert.deepEqual(value?.[0] && Buffer.from(value[0]), bytes.subarray(0, CHUNK));
});
