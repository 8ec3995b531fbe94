/** The index has no checksums: whatever it says, what lies whole in the log is not lost. */
import assert from 'node:assert/strict';
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, test } from 'node:test';
import { installSched, isRonError, realSched, TokenBucket } from '@ron/kernel';
import { addressBytes, type Address } from '@ron/proto';
import { Compactor, type CompactionReport } from './compactor.ts';
import { LocalVolume } from './local-volume.ts';
import { ObjectStore } from './object-store.ts';
import type { Place, Table } from './place-index.ts';
import { RecordType } from './record-types.ts';
import type { DamagedRecord } from './volume.ts';

const signal = new AbortController().signal;
const CHUNK = 64 * 1024;
let dir: string;
let volume: LocalVolume;
let store: ObjectStore;
let damaged: DamagedRecord[];

beforeEach(async () => {
  dir = mkdtempSync(join(tmpdir(), 'ron-wrong-index-'));
  damaged = [];
  await open();
});
afterEach(async () => {
  await volume.close();
  rmSync(dir, { recursive: true });
});

async function open(): Promise<void> {
  volume = await LocalVolume.open({
    dir,
    signal,
    segment_bytes: 8 * CHUNK,
    onDamage: (record) => damaged.push(record),
  });
  store = new ObjectStore({ volume, batch_bytes: 1, cache_bytes: 0 });
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

/** As a flipped bit in the file of the index would have it. */
function mislead(address: Address, change: (place: Place) => Partial<Place>): void {
  const id = addressBytes(address);
  for (const table of ['object', 'content'] as const) {
    const place = volume.index.get(table, id);
    if (place !== undefined) volume.index.set(table, id, { ...place, ...change(place) });
  }
}

const wrongOffset = (place: Place): Partial<Place> => ({ offset: place.offset ^ 0x40 });

/** Runs `work` with a clock that is `ahead_ms` ahead. */
async function later<T>(ahead_ms: number, work: () => Promise<T>): Promise<T> {
  const previous = installSched({ ...realSched, now_ms: () => realSched.now_ms() + ahead_ms });
  try {
    return await work();
  } finally {
    installSched(previous);
  }
}

test('while the log cannot be searched again, what is not where the index says is not ready, and not lost', async () => {
  const bodies = Array.from({ length: 5 }, (_, seed) => content(1000, seed));
  const addresses: Address[] = [];
  for (const bytes of bodies) addresses.push(await put(bytes));
  for (const address of addresses) mislead(address, wrongOffset);
  assert.deepEqual(await get(addresses[0]!), bodies[0]);
  for (const address of addresses.slice(1)) {
    await assert.rejects(store.open(address, signal), (error) => {
      return isRonError(error, 'not_ready') && error.retry_after_ms! > 0;
    });
  }
  assert.deepEqual([damaged, readdirSync(join(dir, 'quarantine'))], [[], []]);
  // The next search finds all that was asked for.
  await later(11_000, async () => {
    for (const [at, address] of addresses.entries()) assert.deepEqual(await get(address), bodies[at]);
  });
  assert.deepEqual(damaged, []);
});

test('a search goes on when whoever asked for it has left', async () => {
  const address = await put(content(1000, 1));
  mislead(address, wrongOffset);
  const impatient = new AbortController();
  const scan = volume.log.scanSegment.bind(volume.log);
  volume.log.scanSegment = async (...args) => {
    impatient.abort(new Error('the deadline'));
    return await scan(...args);
  };
  await assert.rejects(volume.get('object', addressBytes(address), impatient.signal), /the deadline/);
  assert.deepEqual(await get(address), content(1000, 1));
  assert.deepEqual([damaged, volume.relocated_total], [[], 1]);
});

test('a search that fails damages nothing', async () => {
  const address = await put(content(1000, 1));
  mislead(address, wrongOffset);
  const scan = volume.log.scanSegment.bind(volume.log);
  volume.log.scanSegment = () => Promise.reject(Object.assign(new Error('EIO'), { code: 'EIO' }));
  await assert.rejects(store.open(address, signal), (error) => isRonError(error, 'not_ready'));
  await assert.rejects(store.open(address, signal), (error) => isRonError(error, 'not_ready'));
  volume.log.scanSegment = scan;
  await later(11_000, async () => assert.deepEqual(await get(address), content(1000, 1)));
  assert.deepEqual(damaged, []);
});

test('a size that no segment has room for is not believed', async (context) => {
  const addresses = [await put(content(1000, 1)), await put(content(3 * CHUNK, 2))];
  const wrongSize = (place: Place): Partial<Place> => ({ payload_bytes: place.payload_bytes + 2 ** 31 });
  for (const { id } of await volume.inventory('content', undefined, 100)) {
    const place = volume.index.get('content', id)!;
    volume.index.set('content', id, { ...place, ...wrongSize(place) });
  }
  mislead(addresses[1]!, wrongSize);
  let bytes_max = 0;
  for (const name of ['alloc', 'allocUnsafe', 'allocUnsafeSlow'] as const) {
    const allocate = Buffer[name].bind(Buffer);
    context.mock.method(Buffer, name, (bytes: number) => {
      bytes_max = Math.max(bytes_max, bytes);
      return allocate(Math.min(bytes, 2 ** 24));
    });
  }
  assert.deepEqual(await get(addresses[0]!), content(1000, 1));
  assert.deepEqual(await get(addresses[1]!), content(3 * CHUNK, 2));
  assert.ok(bytes_max < 2 ** 24, `${bytes_max} bytes were asked for`);
  assert.deepEqual(damaged, []);
});

function compact(): Promise<CompactionReport> {
  const bucket = new TokenBucket('test', { rate_per_s: 2 ** 32, burst: 2 ** 32 });
  return new Compactor({ store, uploads: undefined, bucket, seal_bytes_min: 1, live_ratio: 1.1 }).run(signal);
}

/** Throws the index away: what is in the log counts. */
async function rebuild(): Promise<void> {
  await volume.close();
  rmSync(join(dir, 'index'), { recursive: true });
  await open();
}

const LOST: Record<string, (table: Table, id: Uint8Array, place: Place) => void> = {
  'leads elsewhere': (table, id, place) => volume.index.set(table, id, { ...place, ...wrongOffset(place) }),
  'leads to no segment': (table, id, place) => volume.index.set(table, id, { ...place, segment: 2 ** 20 }),
  'leads to another record': (table, id, place) => volume.index.set(table, id, { ...place, offset: 0, segment: 1 }),
  'has no entry': (table, id) => volume.index.remove(table, id),
};

for (const [what, spoil] of Object.entries(LOST)) {
  test(`compaction drops nothing that is needed where the index ${what}`, async () => {
    await put(content(CHUNK, 99));
    const small = await put(content(1000, 1));
    const large = await put(content(3 * CHUNK, 2));
    const gone = await put(content(1000, 3));
    const garbage = await put(content(20 * CHUNK, 4));
    const note = { type: RecordType.note, id: content(32, 5), payload: Buffer.from('noted') };
    await volume.put([note], signal);
    await store.pin(large, signal);
    await store.remove(garbage, signal);
    await store.remove(gone, signal);
    await volume.inventory('object', undefined, 1);
    const [smallId, largeId, goneId] = [small, large, gone].map(addressBytes) as [Uint8Array, Uint8Array, Uint8Array];
    const wrong: [Table, Uint8Array][] = [
      ['object', smallId],
      ['content', smallId],
      // An object that the index does not know at all names nothing.
      ...(what === 'has no entry' ? [] : [['object', largeId] as [Table, Uint8Array]]),
      ['pin', largeId],
      ['note', note.id],
      // The mark of its removal.
      ['object', goneId],
    ];
    for (const [table, id] of wrong) spoil(table, id, volume.index.get(table, id)!);
    const used_bytes = volume.stats().used_bytes;
    // What cannot be read yet leaves open what is needed; the second run knows.
    await compact();
    await later(11_000, compact);
    const assertAll = async (): Promise<void> => {
      assert.deepEqual(await get(small), content(1000, 1));
      assert.deepEqual(await get(large), content(3 * CHUNK, 2));
      assert.ok(volume.isPinned(largeId));
      assert.deepEqual((await volume.get('note', note.id, signal))?.payload.toString(), note.payload.toString());
      assert.ok(!store.has(gone) && volume.wasRemoved(goneId));
      assert.ok(!store.has(garbage));
    };
    await assertAll();
    await rebuild();
    await assertAll();
    assert.deepEqual(damaged, []);
    assert.ok(volume.stats().used_bytes < used_bytes / 2, 'and what is garbage goes');
  });
}
