/** Uploads that are interrupted, resumed, taken over and restarted, in a real directory and in memory. */
import assert from 'node:assert/strict';
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { blake3 } from '@napi-rs/blake-hash';
import { isRonError, RonError, TokenBucket } from '@ron/kernel';
import { eventually } from '@ron/testkit';
import fc from 'fast-check';
import { addressOf, bodyOf, CHUNK, content, dir, get, open, signal, volume } from '../../test/uploads-fixture.ts';
import { Compactor } from '../compaction/compactor.ts';
import { ObjectStore } from '../objects/object-store.ts';
import { BATCH_BYTES_DEFAULT } from '../objects/object-writer.ts';
import { MemoryVolume } from '../volume/memory-volume.ts';
import { Uploads } from './uploads.ts';

test('the object does not depend on how the body was split or how often the process restarted', async () => {
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

test('the bytes of an interrupted body are kept, even after a restart', async () => {
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

/** A body that never ends, and the number of bytes that were requested. */
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

test('the upload of a vanished client is taken over, and its bytes count', { timeout: 20_000 }, async () => {
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

test('an aborted request ends at once and its bytes are kept', { timeout: 20_000 }, async () => {
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

test('bytes for another offset are refused with the current offset', async () => {
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

test('a size can be declared later, once, and is enforced', async () => {
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

test('bytes with another address than stated, or a refused one, leave neither object nor upload', async () => {
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

test('compaction keeps the chunks of an upload, even after a restart, and reclaims those of a terminated one', async () => {
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

test('an upload that lost a chunk is reset', async () => {
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

test('a body is read no faster than the disk writes it', { timeout: 20_000 }, async () => {
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
  // One batch waits for the disk, one is full, and one more piece was requested.
  assert.ok(sender.taken() <= 2 * BATCH_BYTES_DEFAULT + CHUNK + 10_000, `${sender.taken()} bytes were read`);
  blocked.resolve();
  await eventually('3_000_000 bytes are taken', () => sender.taken() === 3_000_000);
  cancel.abort();
  await assert.rejects(appending);
});

test('uploads in memory create no file', async () => {
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

test('closing ends active requests and keeps their bytes', { timeout: 20_000 }, async () => {
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
