/** Uploads that are interrupted, taken over, restarted and forgotten, on a real directory and in memory. */
import assert from 'node:assert/strict';
import {
  appendFileSync,
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, test } from 'node:test';
import { blake3 } from '@napi-rs/blake-hash';
import { installSched, isRonError, realSched, RonError, TokenBucket } from '@ron/kernel';
import { formatAddress, type Address } from '@ron/proto';
import fc from 'fast-check';
import { eventually } from '@ron/testkit';
import { Compactor } from './compactor.ts';
import { LocalVolume } from './local-volume.ts';
import { MemoryVolume } from './memory-volume.ts';
import { ObjectStore } from './object-store.ts';
import { BATCH_BYTES_DEFAULT } from './object-writer.ts';
import { Uploads, type UploadsInit } from './uploads.ts';
import type { DamagedRecord } from './volume.ts';

const signal = new AbortController().signal;
const CHUNK = 64 * 1024;
let dir: string;
let volume: LocalVolume | undefined;
let uploads: Uploads | undefined;

beforeEach(() => void (dir = mkdtempSync(join(tmpdir(), 'ron-uploads-'))));
afterEach(async () => {
  await close();
  rmSync(dir, { recursive: true });
});

async function close(): Promise<void> {
  await uploads?.close();
  await volume?.close();
  uploads = undefined;
  volume = undefined;
}

interface Opened {
  store: ObjectStore;
  uploads: Uploads;
}

/** Opens the directory; closes it first when it was open: a restart. */
async function open(init: Partial<UploadsInit> = {}): Promise<Opened> {
  await close();
  volume = await LocalVolume.open({ dir, signal, segment_bytes: 1 << 20 });
  const store = new ObjectStore({ volume, cache_bytes: 0, object_bytes_max: 1 << 30 });
  uploads = await Uploads.open({ store, dir, ...init });
  return { store, uploads };
}

const content = (size: number, seed = 1): Buffer => {
  const bytes = Buffer.allocUnsafe(size);
  for (let at = 0, x = seed; at < size; at++) bytes[at] = (x = Math.imul(x, 1_103_515_245) + 12_345) >>> 16;
  return bytes;
};
const addressOf = (bytes: Buffer): Address => formatAddress(blake3(bytes));

/** A body in pieces; it fails at the end when told to. */
async function* bodyOf(bytes: Buffer, end?: Error): AsyncGenerator<Uint8Array, void, void> {
  for (let at = 0; at < bytes.length; at += 30_000) yield bytes.subarray(at, at + 30_000);
  if (end !== undefined) throw end;
}

async function get(store: ObjectStore, address: Address): Promise<Buffer> {
  const object = await store.open(address, signal);
  assert.ok(object, `${address} is here`);
  const parts: Uint8Array[] = [];
  for await (const part of object.read(0, object.size, signal)) parts.push(Buffer.concat(part));
  return Buffer.concat(parts);
}

/** Runs `work` with a clock that is `ahead_ms` ahead. */
async function later<T>(ahead_ms: number, work: () => Promise<T>): Promise<T> {
  const previous = installSched({ ...realSched, wall_ms: () => Date.now() + ahead_ms });
  try {
    return await work();
  } finally {
    installSched(previous);
  }
}

test('however a body is cut, and however often the process restarts, the object is the same', async () => {
  const cuts = fc.array(fc.record({ at: fc.nat(400_000), restart: fc.boolean() }), { maxLength: 5 });
  await fc.assert(
    fc.asyncProperty(fc.nat(400_000), cuts, async (size, stops) => {
      let opened = await open();
      const bytes = content(size, size + 1);
      const { id } = await opened.uploads.create({ size, metadata: 'name dGVzdA==', media_type: 'text/x' });
      let offset = 0;
      for (const { at, restart } of stops.toSorted((a, b) => a.at - b.at)) {
        const end = Math.min(at, size);
        if (end === size) break;
        const status = await opened.uploads.append({ id, offset, body: bodyOf(bytes.subarray(offset, end)), signal });
        assert.equal(status.offset, end);
        offset = end;
        if (restart) opened = await open();
        assert.equal(opened.uploads.status(id)!.offset, end);
      }
      const rest = bodyOf(bytes.subarray(offset));
      const done = size === 0 ? undefined : await opened.uploads.append({ id, offset, body: rest, signal });
      opened = await open();
      const status = opened.uploads.status(id)!;
      assert.deepEqual(status, { ...(done ?? status), offset: size, size, metadata: 'name dGVzdA==' });
      assert.equal(status.address, addressOf(bytes));
      assert.deepEqual(await get(opened.store, status.address), bytes);
      assert.equal((await opened.store.open(status.address, signal))!.media_type, 'text/x');
      assert.equal(opened.store.leases.size, 0);
    }),
    { numRuns: 12 },
  );
});

test('a body that breaks off leaves what it brought, also after a restart', async () => {
  let opened = await open();
  const bytes = content(500_000);
  const { id } = await opened.uploads.create({ size: bytes.length });
  const broken = bodyOf(bytes.subarray(0, 210_000), new Error('connection reset'));
  await assert.rejects(opened.uploads.append({ id, offset: 0, body: broken, signal }), /connection reset/);
  assert.equal(opened.uploads.status(id)!.offset, 210_000);
  opened = await open();
  assert.equal((await opened.uploads.settle(id, signal)).offset, 210_000);
  const body = bodyOf(bytes.subarray(210_000));
  const { address } = await opened.uploads.append({ id, offset: 210_000, body, signal });
  assert.deepEqual(await get(opened.store, address!), bytes);
});

/** A body that never ends, and how much of it has been asked for. */
function hanging(bytes: Buffer): { body: AsyncIterable<Uint8Array>; taken: () => number } {
  let taken = 0;
  const iterator: AsyncIterator<Uint8Array> = {
    next: async () => {
      if (taken >= bytes.length) return await new Promise<never>(() => undefined);
      taken += 10_000;
      return { done: false, value: bytes.subarray(taken - 10_000, taken) };
    },
    return: () => new Promise<never>(() => undefined),
  };
  return { body: { [Symbol.asyncIterator]: () => iterator }, taken: () => taken };
}

test('a client that vanished without a word is taken over, and what it sent counts', { timeout: 20_000 }, async () => {
  const opened = await open();
  const bytes = content(200_000);
  const { id } = await opened.uploads.create({ size: bytes.length });
  const vanished = hanging(bytes.subarray(0, 90_000));
  const first = opened.uploads.append({ id, offset: 0, body: vanished.body, signal });
  const outcome = assert.rejects(first, (error) => isRonError(error, 'conflict'));
  await eventually('90_000 bytes are taken', () => vanished.taken() === 90_000);
  const { offset } = await opened.uploads.settle(id, signal);
  await outcome;
  assert.equal(offset, 90_000);
  const { address } = await opened.uploads.append({ id, offset, body: bodyOf(bytes.subarray(offset)), signal });
  assert.equal(address, addressOf(bytes));
});

test('a request whose signal aborts ends at once and leaves what it brought', { timeout: 20_000 }, async () => {
  const opened = await open();
  const { id } = await opened.uploads.create({});
  const gone = new AbortController();
  const vanished = hanging(content(40_000));
  const first = opened.uploads.append({ id, offset: 0, body: vanished.body, signal: gone.signal });
  await eventually('40_000 bytes are taken', () => vanished.taken() === 40_000);
  gone.abort(new Error('too slow'));
  await assert.rejects(first, /too slow/);
  assert.equal(opened.uploads.status(id)!.offset, 40_000);
});

test('bytes for another place than the next one are refused, and told where it is', async () => {
  const opened = await open();
  const { id } = await opened.uploads.create({ size: 100 });
  await opened.uploads.append({ id, offset: 0, body: bodyOf(content(10)), signal });
  for (const offset of [0, 11]) {
    await assert.rejects(
      opened.uploads.append({ id, offset, body: bodyOf(content(10)), signal }),
      (error) => isRonError(error, 'conflict') && error.details?.['offset'] === 10,
    );
  }
  await assert.rejects(
    opened.uploads.append({ id: '0'.repeat(32), offset: 0, body: bodyOf(content(10)), signal }),
    (error) => isRonError(error, 'not_found'),
  );
});

test('a size can be declared later, once, and is kept to', async () => {
  let opened = await open();
  const bytes = content(1000);
  const { id } = await opened.uploads.create({});
  await opened.uploads.append({ id, offset: 0, body: bodyOf(bytes.subarray(0, 500)), signal });
  const nothing = (): AsyncIterable<Uint8Array> => bodyOf(Buffer.alloc(0));
  await assert.rejects(opened.uploads.append({ id, offset: 500, size: 499, body: nothing(), signal }), (error) =>
    isRonError(error, 'conflict'),
  );
  await opened.uploads.append({ id, offset: 500, size: 1000, body: nothing(), signal });
  opened = await open();
  assert.equal(opened.uploads.status(id)!.size, 1000);
  await assert.rejects(opened.uploads.append({ id, offset: 500, size: 1001, body: nothing(), signal }), (error) =>
    isRonError(error, 'conflict'),
  );
  await assert.rejects(opened.uploads.append({ id, offset: 500, body: bodyOf(content(501)), signal }), (error) =>
    isRonError(error, 'payload_too_large'),
  );
  const { address } = await opened.uploads.append({ id, offset: 500, body: bodyOf(bytes.subarray(500)), signal });
  assert.equal(address, addressOf(bytes));
});

test('impossible sizes and long metadata are refused', async () => {
  const opened = await open();
  await assert.rejects(opened.uploads.create({ size: -1 }), (error) => isRonError(error, 'bad_request'));
  await assert.rejects(opened.uploads.create({ size: 2 ** 31 }), (error) => isRonError(error, 'payload_too_large'));
  const metadata = 'x'.repeat(9000);
  await assert.rejects(opened.uploads.create({ metadata }), (error) => isRonError(error, 'payload_too_large'));
  assert.deepEqual(readdirSync(join(dir, 'uploads')), []);
});

test('bytes that are not what was claimed, or not allowed, leave neither object nor upload', async () => {
  const opened = await open();
  const bytes = content(3 * CHUNK);
  const claimed = await opened.uploads.create({ size: bytes.length, expected: addressOf(content(5)) });
  await assert.rejects(opened.uploads.append({ id: claimed.id, offset: 0, body: bodyOf(bytes), signal }), (error) =>
    isRonError(error, 'address_mismatch'),
  );
  const forbidden = await opened.uploads.create({ size: bytes.length });
  const onAddress = (): never => {
    throw new RonError('forbidden', 'not this one');
  };
  await assert.rejects(
    opened.uploads.append({ id: forbidden.id, offset: 0, body: bodyOf(bytes), onAddress, signal }),
    (error) => isRonError(error, 'forbidden'),
  );
  assert.ok(!opened.store.has(addressOf(bytes)));
  assert.deepEqual(opened.uploads.counts, { open: 0, finished: 0 });
  assert.deepEqual(readdirSync(join(dir, 'uploads')), []);
  assert.equal(opened.store.leases.size, 0);
});

test('there is a bound, and time or termination makes room', async () => {
  const opened = await open({ uploads_max: 2, expiry_ms: 60_000 });
  const first = await opened.uploads.create({ size: 10 });
  await opened.uploads.create({ size: 10 });
  await assert.rejects(opened.uploads.create({ size: 10 }), (error) => isRonError(error, 'busy'));
  await opened.uploads.terminate(first.id, signal);
  assert.equal(opened.uploads.status(first.id), undefined);
  await opened.uploads.create({ size: 10 });
  await later(61_000, async () => {
    await opened.uploads.create({ size: 10 });
    assert.deepEqual(opened.uploads.counts, { open: 1, finished: 0 });
    assert.equal(readdirSync(join(dir, 'uploads')).length, 1);
  });
});

test('an upload that is added to lives on; one that expired is gone, before anything cleans up', async () => {
  const opened = await open({ expiry_ms: 60_000 });
  const { id } = await opened.uploads.create({ size: 100 });
  await later(50_000, () => opened.uploads.append({ id, offset: 0, body: bodyOf(content(10)), signal }));
  await later(100_000, async () => assert.equal(opened.uploads.status(id)!.offset, 10));
  const reopened = await open({ expiry_ms: 60_000 });
  await later(100_000, async () => assert.equal(reopened.uploads.status(id)!.offset, 10));
  await later(120_000, async () => {
    assert.equal(reopened.uploads.status(id), undefined);
    const body = bodyOf(content(10));
    await assert.rejects(reopened.uploads.append({ id, offset: 10, body, signal }), (error) =>
      isRonError(error, 'not_found'),
    );
    assert.equal(await reopened.uploads.expire(), 1);
  });
  assert.deepEqual(readdirSync(join(dir, 'uploads')), []);
});

test('finished uploads tell their address until they expire, and the oldest make room', async () => {
  let opened = await open({ finished_max: 2, expiry_ms: 60_000 });
  const ids: string[] = [];
  for (const seed of [1, 2, 3]) {
    const { id } = await opened.uploads.create({ size: 10 });
    ids.push(id);
    await opened.uploads.append({ id, offset: 0, body: bodyOf(content(10, seed)), signal });
  }
  assert.equal(opened.uploads.status(ids[0]!), undefined);
  opened = await open({ finished_max: 2, expiry_ms: 60_000 });
  assert.equal((await opened.uploads.settle(ids[2]!, signal)).address, addressOf(content(10, 3)));
  await later(61_000, async () => assert.equal(await opened.uploads.expire(), 2));
  assert.ok(opened.store.has(addressOf(content(10, 1))));
});

test('an object whose upload could not be marked as finished is finished when somebody asks', async () => {
  const opened = await open();
  const bytes = content(2 * CHUNK);
  const { id } = await opened.uploads.create({ size: bytes.length });
  const writer = opened.store.writer.bind(opened.store);
  opened.store.writer = (from) => {
    const made = writer(from);
    made.finish = () => Promise.reject(new RonError('not_ready', 'power cut'));
    return made;
  };
  await assert.rejects(opened.uploads.append({ id, offset: 0, body: bodyOf(bytes), signal }), /power cut/);
  const again = await open();
  assert.equal(again.uploads.status(id)!.address, undefined);
  assert.equal((await again.uploads.settle(id, signal)).address, addressOf(bytes));
  assert.deepEqual(await get(again.store, addressOf(bytes)), bytes);
});

test('a torn or damaged end of a journal costs what it said, and the upload goes on from before', async () => {
  const bytes = content(300_000);
  for (const harm of ['torn', 'rubbish', 'shorter'] as const) {
    let opened = await open();
    const { id } = await opened.uploads.create({ size: bytes.length });
    for (const [from, to] of [
      [0, 100_000],
      [100_000, 200_000],
    ] as const) {
      await opened.uploads.append({ id, offset: from, body: bodyOf(bytes.subarray(from, to)), signal });
    }
    await close();
    const path = join(dir, 'uploads', id);
    if (harm === 'torn') truncateSync(path, statSync(path).size - 1);
    if (harm === 'shorter') truncateSync(path, statSync(path).size - 2000);
    if (harm === 'rubbish') appendFileSync(path, content(1000, 7));
    opened = await open();
    const { offset } = opened.uploads.status(id)!;
    assert.equal(offset, harm === 'rubbish' ? 200_000 : 100_000, harm);
    const half = bodyOf(bytes.subarray(offset, 250_000));
    await opened.uploads.append({ id, offset, body: half, signal });
    opened = await open();
    assert.equal(opened.uploads.status(id)!.offset, 250_000, harm);
    const body = bodyOf(bytes.subarray(250_000));
    assert.equal((await opened.uploads.append({ id, offset: 250_000, body, signal })).address, addressOf(bytes));
  }
});

test('a journal that never got its first frame is removed', async () => {
  await open();
  await close();
  appendFileSync(join(dir, 'uploads', 'a'.repeat(32)), content(5));
  appendFileSync(join(dir, 'uploads', `${'b'.repeat(32)}.new`), content(5));
  const opened = await open();
  assert.deepEqual(opened.uploads.counts, { open: 0, finished: 0 });
  assert.deepEqual(readdirSync(join(dir, 'uploads')), []);
});

test('a journal stays small however small the pieces are', async () => {
  const opened = await open();
  const bytes = content(4 * CHUNK);
  const { id } = await opened.uploads.create({ size: 1 << 25 });
  // Each piece is a frame; the bytes of a chunk that is complete are of no more use.
  for (let round = 0; round < 8; round++) {
    for (let at = 0; at < bytes.length; at += 16_000) {
      const piece = bytes.subarray(at, at + 16_000);
      const { offset } = opened.uploads.status(id)!;
      await opened.uploads.append({ id, offset, body: bodyOf(piece), signal });
    }
  }
  assert.equal(opened.uploads.status(id)!.offset, 8 * bytes.length);
  assert.ok(statSync(join(dir, 'uploads', id)).size < 1.5 * (1 << 20));
});

test('what an upload holds is not compacted away, also after a restart; what it let go is', async () => {
  let opened = await open();
  const bytes = content(6 * CHUNK);
  const { id } = await opened.uploads.create({ size: bytes.length + 1 });
  await opened.uploads.append({ id, offset: 0, body: bodyOf(bytes), signal });
  const compact = async (): Promise<number> => {
    const bucket = new TokenBucket('test', { rate_per_s: 2 ** 32, burst: 2 ** 32 });
    const init = { store: opened.store, uploads: opened.uploads, bucket, live_ratio: 1, seal_bytes_min: 1 };
    return (await new Compactor(init).run(signal)).freed_bytes;
  };
  await compact();
  opened = await open();
  await compact();
  const first = blake3(bytes.subarray(0, CHUNK));
  assert.ok(volume!.isDurable('content', first));
  await opened.uploads.terminate(id, signal);
  assert.ok((await compact()) >= 5 * CHUNK);
  assert.ok(!volume!.has('content', first));
});

test('an upload that lost a chunk begins again', async () => {
  let opened = await open();
  const bytes = content(6 * CHUNK);
  const { id } = await opened.uploads.create({ size: bytes.length });
  await opened.uploads.append({ id, offset: 0, body: bodyOf(bytes.subarray(0, 5 * CHUNK)), signal });
  volume!.index.remove('content', blake3(bytes.subarray(0, CHUNK)));
  const body = bodyOf(bytes.subarray(5 * CHUNK));
  await assert.rejects(opened.uploads.append({ id, offset: 5 * CHUNK, body, signal }), (error) =>
    isRonError(error, 'not_ready'),
  );
  assert.equal(opened.uploads.status(id)!.offset, 0);
  await opened.uploads.append({ id, offset: 0, body: bodyOf(bytes.subarray(0, 5 * CHUNK)), signal });
  await volume!.inventory('content', undefined, 1);
  volume!.index.remove('content', blake3(bytes.subarray(0, CHUNK)));
  opened = await open();
  assert.equal(opened.uploads.status(id)!.offset, 0);
  const { address } = await opened.uploads.append({ id, offset: 0, body: bodyOf(bytes), signal });
  assert.deepEqual(await get(opened.store, address!), bytes);
});

test('a body is taken no faster than the disk takes it', { timeout: 20_000 }, async () => {
  const opened = await open();
  const { id } = await opened.uploads.create({});
  const blocked = Promise.withResolvers<void>();
  const put = volume!.put.bind(volume);
  volume!.put = async (...args) => {
    await blocked.promise;
    await put(...args);
  };
  const sender = hanging(content(3_000_000));
  const cancel = new AbortController();
  const appending = opened.uploads.append({ id, offset: 0, body: sender.body, signal: cancel.signal });
  for (let turn = 0; turn < 100; turn++) await new Promise<void>((resolve) => void setImmediate(resolve));
  // One batch waits for the disk, one is full, and one piece was asked for that has no place yet.
  assert.ok(sender.taken() <= 2 * BATCH_BYTES_DEFAULT + CHUNK + 10_000, `${sender.taken()} bytes were taken`);
  blocked.resolve();
  await eventually('3_000_000 bytes are taken', () => sender.taken() === 3_000_000);
  cancel.abort();
  await assert.rejects(appending);
});

test('in memory it works without a file', async () => {
  const store = new ObjectStore({ volume: new MemoryVolume({ bytes_max: 8 << 20 }), cache_bytes: 0 });
  await using memory = await Uploads.open({ store, dir: undefined });
  const bytes = content(300_000);
  const { id } = await memory.create({ size: bytes.length });
  await memory.append({ id, offset: 0, body: bodyOf(bytes.subarray(0, 150_000)), signal });
  const body = bodyOf(bytes.subarray(150_000));
  const { address } = await memory.append({ id, offset: 150_000, body, signal });
  assert.deepEqual(await get(store, address!), bytes);
  assert.equal(memory.status(id)!.address, address);
  await memory.terminate(id, signal);
  assert.equal(memory.status(id), undefined);
  assert.equal(store.leases.size, 0);
  assert.ok(!existsSync(join(dir, 'uploads')));
});

test('closing ends what is under way and keeps what came', { timeout: 20_000 }, async () => {
  const opened = await open();
  const { id } = await opened.uploads.create({ size: 200_000 });
  const sender = hanging(content(150_000));
  const appending = opened.uploads.append({ id, offset: 0, body: sender.body, signal });
  const outcome = assert.rejects(appending, (error) => isRonError(error, 'draining'));
  await eventually('150_000 bytes are taken', () => sender.taken() === 150_000);
  await opened.uploads.close();
  await outcome;
  assert.equal(opened.store.leases.size, 0);
  await assert.rejects(opened.uploads.create({ size: 1 }), (error) => isRonError(error, 'draining'));
  assert.equal((await open()).uploads.status(id)!.offset, 150_000);
});

test('a damaged journal is kept aside and told of; one that was never begun just goes', async () => {
  const damaged: DamagedRecord[] = [];
  const onDamage = (record: DamagedRecord): unknown => damaged.push(record);
  const { uploads: first } = await open();
  const ids: string[] = [];
  for (let at = 0; at < 3; at++) {
    const { id } = await first.create({ size: 3 * CHUNK });
    ids.push(id);
    for (let part = 0; part < 2; part++) {
      await first.append({ id, offset: part * CHUNK, body: bodyOf(content(CHUNK, part)), signal });
    }
  }
  await close();
  const [spoilt, partly, empty] = ids.map((id) => join(dir, 'uploads', id)) as [string, string, string];
  const flip = (path: string, at: number): void => {
    const bytes = readFileSync(path);
    bytes[at]! ^= 1;
    writeFileSync(path, bytes);
  };
  flip(spoilt, 20);
  // The first frame after that of the creation.
  flip(partly, 9 + readFileSync(partly).readUInt32LE(4) + 20);
  truncateSync(empty, 5);
  const { uploads: again } = await open({ onDamage });
  assert.deepEqual(new Set(damaged.map((record) => record.id_hex)), new Set(ids.slice(0, 2)));
  assert.deepEqual(readdirSync(join(dir, 'quarantine')), [`upload-${ids[0]}`]);
  assert.deepEqual([again.status(ids[0]!), again.status(ids[2]!)], [undefined, undefined]);
  assert.equal(again.status(ids[1]!)?.offset, 0);
  assert.ok(!existsSync(spoilt) && !existsSync(empty));
});
