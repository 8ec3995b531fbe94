/** A cache on disk finds the objects that were kept, within its bound, and none that was removed. */
import assert from 'node:assert/strict';
import { readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { blake3 } from '@napi-rs/blake-hash';
import { TokenBucket } from '@ron/kernel';
import { formatAddress, type Address } from '@ron/proto';
import { eventually, tempDirFor } from '@ron/testkit';
import { Compactor } from '../compaction/compactor.ts';
import { ENTRY_BYTES } from '../index/entry.ts';
import { ObjectStore } from '../objects/object-store.ts';
import { LocalVolume } from '../volume/local-volume.ts';
import { EvictingStore, LIVE_RATIO, type NoteTarget } from './evicting-store.ts';
import { nameBytes } from './named-objects.ts';

const { signal } = new AbortController();
const KIB = 1024;
const BYTES_MAX = 4 * KIB * KIB;
const SEGMENT_BYTES = 256 * KIB;

/** A note is the name, the address and the size. */
const encode = ({ name, address, size }: NoteTarget): Buffer => Buffer.from(`${name} ${address} ${size}`);
function parse(note: Uint8Array): NoteTarget | undefined {
  const [name, address, size] = Buffer.from(note).toString().split(' ');
  return size === undefined ? undefined : { name: name!, address: address as Address, size: Number(size) };
}

interface Opened extends AsyncDisposable {
  readonly volume: LocalVolume;
  readonly store: ObjectStore;
  readonly cache: EvictingStore;
  /** Ends its task before the directory is removed. Idempotent. */
  stop(): Promise<void>;
}

async function open(dir: string, more: Partial<{ names_bytes_max: number; hot: string }> = {}): Promise<Opened> {
  const volume = await LocalVolume.open({ dir, signal, segment_bytes: SEGMENT_BYTES });
  const store = new ObjectStore({ volume, cache_bytes: 0, batch_bytes: 128 * KIB });
  const bucket = new TokenBucket('test', { rate_per_s: 2 ** 32, burst: 2 ** 32 });
  const init = { store, uploads: undefined, bucket, live_ratio: LIVE_RATIO, seal_bytes_min: SEGMENT_BYTES / 2 };
  let isStopped = false;
  const cache = new EvictingStore({
    store,
    compactor: new Compactor(init),
    bytes_max: BYTES_MAX,
    names_bytes_max: more.names_bytes_max ?? 10_000 * KIB,
    segment_bytes: SEGMENT_BYTES,
    indexBytes: () => volume.index.runs.runs.reduce((sum, { count }) => sum + count * ENTRY_BYTES, 0),
    parse,
    isHot: (name) => name === more.hot,
    onFailure: (error) => {
      if (!isStopped) assert.fail(`a step failed: ${String(error)}`);
    },
  });
  const stopping = new AbortController();
  const running = cache.run(stopping.signal);
  const stop = async (): Promise<void> => {
    if (isStopped) return;
    isStopped = true;
    stopping.abort();
    await running;
    await volume.close();
  };
  return { volume, store, cache, stop, [Symbol.asyncDispose]: stop };
}

const bodyOf = (size: number, seed: number): Buffer => Buffer.alloc(size, `body ${seed} of ${size} `);

function keep(cache: EvictingStore, name: string, bytes: Buffer): Promise<boolean> {
  const target = { name, address: formatAddress(blake3(bytes)), size: bytes.length };
  return cache.keep({ ...target, note: encode(target), bytes }, signal);
}

async function read(cache: EvictingStore, name: string): Promise<Buffer | undefined> {
  const found = await cache.find(name, signal);
  if (found === undefined) return undefined;
  using hold = found.hold();
  assert.ok(hold);
  const parts: Uint8Array[] = [];
  for await (const batch of found.object.read(0, found.object.size, signal)) parts.push(Buffer.concat(batch));
  return Buffer.concat(parts);
}

/** The bytes of the files below a directory. */
function bytesIn(dir: string): number {
  return readdirSync(dir, { recursive: true, withFileTypes: true })
    .filter((each) => each.isFile())
    .reduce((sum, each) => sum + statSync(join(each.parentPath, each.name)).size, 0);
}

test('a stream of ten times the bound stays within it on disk, and names that are used stay', async (t) => {
  const dir = tempDirFor(t);
  await using opened = await open(dir, { hot: 'outer' });
  const { cache } = opened;
  await keep(cache, 'hot', bodyOf(20 * KIB, -1));
  await keep(cache, 'outer', bodyOf(20 * KIB, -2));
  await keep(cache, 'cold', bodyOf(20 * KIB, -3));
  let refused = 0;
  const keepSoon = (seed: number): Promise<void> =>
    eventually(`${seed} is kept`, async () => {
      const isKept = await keep(cache, `scan ${seed}`, bodyOf(16 * KIB, seed));
      if (!isKept) refused += 1;
      assert.ok(cache.disk_bytes <= BYTES_MAX, `${cache.disk_bytes} bytes after ${seed}`);
      return isKept;
    });
  for (let seed = 0; seed < 2600; seed += 8) {
    await Promise.all(Array.from({ length: 8 }, (_, at) => keepSoon(seed + at)));
    if (seed % 40 === 0) assert.deepEqual(await read(cache, 'hot'), bodyOf(20 * KIB, -1));
  }
  assert.ok(bytesIn(dir) <= BYTES_MAX, `${bytesIn(dir)} bytes are in the directory`);
  assert.ok(cache.has('hot') && cache.has('outer') && !cache.has('cold'));
  assert.deepEqual(await read(cache, 'outer'), bodyOf(20 * KIB, -2));
  t.diagnostic(`${cache.size} names in ${cache.disk_bytes} bytes, ${refused} refused`);
});

test('the number of names is bounded, and the oldest are evicted first', async (t) => {
  await using opened = await open(tempDirFor(t), { names_bytes_max: 100 * nameBytes('100') });
  const { cache, volume } = opened;
  for (let seed = 0; seed < 120; seed++) await keep(cache, `${seed}`, bodyOf(100, seed));
  await eventually('the evictor has made room', () => cache.size <= 101);
  assert.ok(!cache.has('0') && cache.has('119'));
  await eventually('notes and objects of evicted names are removed', async () => {
    const [notes, objects] = [
      await volume.inventory('note', undefined, 999),
      await volume.inventory('object', undefined, 999),
    ];
    return notes.length === cache.size && objects.length === cache.size;
  });
});

test('a restart keeps every name that has a note, and removes objects without one', async (t) => {
  const dir = tempDirFor(t);
  await using first = await open(dir);
  for (let seed = 0; seed < 50; seed++) await keep(first.cache, `${seed}`, bodyOf(2000 + seed, seed));
  await keep(first.cache, 'large', bodyOf(300 * KIB, 99));
  const { address: orphan } = await first.store.put(bodyOf(500, 77), {}, signal);
  await first.stop();
  await using opened = await open(dir);
  const { cache, store } = opened;
  // Even before they are loaded.
  assert.deepEqual(await read(cache, '7'), bodyOf(2007, 7));
  await eventually('the names are loaded', () => cache.isLoaded);
  assert.equal(cache.size, 51);
  for (let seed = 0; seed < 50; seed++) assert.deepEqual(await read(cache, `${seed}`), bodyOf(2000 + seed, seed));
  assert.deepEqual(await read(cache, 'large'), bodyOf(300 * KIB, 99));
  await eventually('the object without a note is removed', () => !store.has(orphan));
});

test('names with the same bytes share an object, which stays until the last one is removed', async (t) => {
  await using opened = await open(tempDirFor(t));
  const { cache, store } = opened;
  const body = bodyOf(1000, 1);
  const address = formatAddress(blake3(body));
  await keep(cache, 'a', body);
  await keep(cache, 'b', body);
  assert.equal(await cache.removeWhere((name) => name === 'a', signal), 1);
  assert.equal(await read(cache, 'a'), undefined);
  assert.deepEqual(await read(cache, 'b'), body);
  assert.ok(store.has(address));
  await cache.removeWhere((name) => name === 'b', signal);
  await eventually('the object is removed', () => !store.has(address));
  assert.ok(await keep(cache, 'a', body));
  assert.deepEqual(await read(cache, 'a'), body);
});

test('a removal is durable, takes a keep in progress with it, and leaves later ones alone', async (t) => {
  const dir = tempDirFor(t);
  await using first = await open(dir);
  await keep(first.cache, 'x/1', bodyOf(100, 1));
  await keep(first.cache, 'y/1', bodyOf(100, 2));
  const inProgress = keep(first.cache, 'x/2', bodyOf(100, 3));
  const removal = first.cache.removeWhere((name) => name.startsWith('x/'), signal);
  assert.ok(!first.cache.has('x/1'), 'unreadable in the step of the call');
  assert.equal(await inProgress, false);
  assert.equal(await removal, 1);
  assert.ok(await keep(first.cache, 'x/3', bodyOf(100, 4)));
  await first.stop();
  await using opened = await open(dir);
  const { cache } = opened;
  // While names are loaded, a removal covers those that are not known yet.
  const early = cache.removeWhere((name) => name === 'y/1', signal);
  assert.equal(await read(cache, 'y/1'), undefined);
  assert.equal(await early, 1);
  assert.deepEqual(
    [1, 2, 3].map((each) => cache.has(`x/${each}`)),
    [false, false, true],
  );
});

test('a name is replaced as a whole, and the former object is removed', async (t) => {
  await using opened = await open(tempDirFor(t));
  const { cache, store } = opened;
  await keep(cache, 'a', bodyOf(1000, 1));
  await Promise.all([keep(cache, 'a', bodyOf(1000, 2)), keep(cache, 'a', bodyOf(1000, 3))]);
  assert.deepEqual(await read(cache, 'a'), bodyOf(1000, 3));
  const former = [1, 2].map((seed) => formatAddress(blake3(bodyOf(1000, seed))));
  await eventually('the former objects are removed', () => former.every((address) => !store.has(address)));
  assert.deepEqual(await read(cache, 'a'), bodyOf(1000, 3));
});

test('a large object is written as a stream, named, and stays while it is read', async (t) => {
  await using opened = await open(tempDirFor(t));
  const { cache, store } = opened;
  const body = bodyOf(400 * KIB, 5);
  const writer = cache.writer(512 * KIB)!;
  for (let at = 0; at < body.length; at += 30_000) await writer.write(body.subarray(at, at + 30_000), signal);
  const { address, size } = await writer.finish(signal);
  const target = { name: 'large', address, size };
  assert.ok(await cache.keep({ ...target, note: encode(target), bytes: undefined }, signal));
  const found = (await cache.find('large', signal))!;
  const hold = found.hold();
  await cache.removeWhere(() => true, signal);
  assert.equal(await cache.find('large', signal), undefined);
  assert.ok(store.has(address), 'a reader holds it');
  hold[Symbol.dispose]();
  await keep(cache, 'b', bodyOf(100, 6));
  const missing = { name: 'b', address: formatAddress(blake3(bodyOf(1, 1))), size: 1 };
  assert.ok(!(await cache.keep({ ...missing, note: encode(missing), bytes: undefined }, signal)), 'not stored');
  assert.ok(!cache.has('b'), 'the former version is not found either');
  assert.equal(cache.writer(BYTES_MAX), undefined, 'without room there is no writer');
  const tooLarge = cache.writer(100_000)!;
  await assert.rejects(tooLarge.write(bodyOf(100_001, 1), signal), { code: 'payload_too_large' });
  tooLarge.abort();
});

test('a damaged note or object counts as absent, and can be kept again', async (t) => {
  const dir = tempDirFor(t);
  await using first = await open(dir);
  await keep(first.cache, 'note', bodyOf(1000, 1));
  await keep(first.cache, 'object', bodyOf(1000, 2));
  await first.stop();
  const segment = join(dir, 'segments', readdirSync(join(dir, 'segments'))[0]!);
  const bytes = readFileSync(segment);
  bytes[bytes.indexOf('note b3:') + 20]! ^= 1;
  bytes[bytes.indexOf('body 2 of')]! ^= 1;
  writeFileSync(segment, bytes);
  await using opened = await open(dir);
  const { cache } = opened;
  assert.equal(await read(cache, 'note'), undefined);
  assert.equal(await read(cache, 'object'), undefined);
  await eventually('the names are loaded', () => cache.isLoaded);
  for (const [name, seed] of [
    ['note', 1],
    ['object', 2],
  ] as const) {
    await eventually(`${name} is kept again`, () => keep(cache, name, bodyOf(1000, seed)));
    assert.deepEqual(await read(cache, name), bodyOf(1000, seed));
  }
});
