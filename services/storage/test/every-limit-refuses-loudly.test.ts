/** Each limit of storage is crossed once: status, problem code and metric; and requests within the limit succeed. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { gzipSync } from 'node:zlib';
import { assertSameBytes, bytesOf, eventually, KIB, MIB } from '@ron/testkit';
import { addressOf, assertRefusal, RawClient } from '@ron/testkit/service';
import { FaultyDisk } from './faulty-disk.ts';
import { AMNESIA, startService, type TestService } from './support.ts';

const pathOf = (bytes: Uint8Array): string => `/o/${addressOf(bytes)}`;

async function assertCounted(service: TestService, series: string, count = 1): Promise<void> {
  assert.equal(await service.metric(series), count, series);
}

/** For clocks: on a busy machine one may run out that was not meant to. */
async function assertTimedOut(service: TestService, op: string, at_least: number): Promise<void> {
  const count = await service.metric(`io_timeouts_total{op="${op}"}`);
  assert.ok(count >= at_least, `${op} timed out ${count} times`);
}

interface OnFaultyDisk extends AsyncDisposable {
  readonly service: TestService;
  readonly disk: FaultyDisk;
  readonly path: string;
}

/** A service with a disk that can hang, holding one object of several chunks that is in no cache. */
async function withFaultyDisk(flags: readonly string[]): Promise<OnFaultyDisk> {
  const disk = new FaultyDisk();
  const service = await startService({ flags: ['--storage.cache_bytes=1MiB', ...flags], fs: disk.fs });
  const bytes = bytesOf(300_000);
  const end = async (): Promise<void> => {
    disk.mend();
    await service[Symbol.asyncDispose]();
  };
  const headers = await service.allow();
  // On a busy machine a disk may be too slow for the short deadlines of these tests, once.
  await eventually('the object is stored', async () => {
    const { status } = await service.send('PUT', pathOf(bytes), { body: bytes, headers });
    return status === 200 || status === 201;
  });
  return { service, disk, path: pathOf(bytes), [Symbol.asyncDispose]: end };
}

describe('time', () => {
  test('a read that the disk does not answer: 504 after the deadline to the first byte', async () => {
    await using on = await withFaultyDisk(['--storage.get_deadline=300ms']);
    const { service, disk, path } = on;
    disk.hold('read');
    // The record of the object hangs: the request waits in a worker.
    assertRefusal(await service.send('GET', path), 504, 'timeout');
    await assertTimedOut(service, 'get', 1);
    disk.release('read');
    await eventually('the disk answers', () => disk.waiting.read === 0);
    await eventually('the object is known, its chunks are not', async () => {
      return (await service.send('HEAD', path)).status === 200;
    });
    disk.hold('read');
    // The first chunk hangs: the request has left the worker and its answer has not begun.
    // [storage I-4]
    assertRefusal(await service.send('GET', path), 504, 'timeout');
    assertRefusal(await service.send('GET', `${path}?proof=bao`), 504, 'timeout');
    await assertTimedOut(service, 'get', 3);
    disk.release('read');
    await eventually('the disk answers again', async () => (await service.send('GET', path)).status === 200);
  });

  test('an answer that has begun goes by progress, not by the deadline to its first byte', async () => {
    await using service = await startService({ flags: ['--storage.get_deadline=1s'] });
    const bytes = bytesOf(16 * MIB, 2);
    await service.put(bytes);
    const client = await RawClient.open(service.port);
    client.head('GET', pathOf(bytes), { Connection: 'close' });
    await client.until(/\r\n\r\n/);
    client.socket.pause();
    await new Promise((resolve) => setTimeout(resolve, 1200));
    client.socket.resume();
    await client.rest();
    const body = client.received.slice(client.received.indexOf('\r\n\r\n') + 4);
    assertSameBytes(Buffer.from(body, 'latin1'), bytes);
    await assertCounted(service, 'io_timeouts_total{op="get"}', 0);
  });

  test('a write whose sync hangs: 504, and it is answered once the disk is back', async () => {
    await using on = await withFaultyDisk(['--storage.put_deadline=300ms']);
    const { service, disk } = on;
    const all = await service.allow();
    disk.hold('sync');
    for (const size of [100, 300_000]) {
      const bytes = bytesOf(size, size);
      assertRefusal(await service.send('PUT', pathOf(bytes), { body: bytes, headers: all }), 504, 'timeout');
    }
    await assertTimedOut(service, 'put', 2);
    disk.release('sync');
    const bytes = bytesOf(100, 100);
    await eventually('the disk is back', async () => {
      const { status } = await service.send('PUT', pathOf(bytes), { body: bytes, headers: all });
      return status === 200 || status === 201;
    });
  });

  test('a write whose chunks the disk does not take: 504 while the client still sends', async () => {
    await using on = await withFaultyDisk(['--storage.put_deadline=300ms']);
    const { service, disk } = on;
    const all = await service.allow();
    disk.hold('write');
    const reply = await service.send('POST', '/o', { body: bytesOf(4 * MIB, 5), headers: all });
    assertRefusal(reply, 504, 'timeout');
    disk.release('write');
    await eventually('the disk is back', () => disk.waiting.write === 0);
  });

  test('a write may take as long as its client keeps sending', async () => {
    await using service = await startService({ flags: ['--storage.put_deadline=1s', '--storage.put_wait=1s'] });
    const bytes = bytesOf(400_000, 6);
    const client = await RawClient.open(service.port);
    client.head('PUT', pathOf(bytes), { 'Content-Length': bytes.length, ...(await service.allow()) });
    for (let at = 0; at < bytes.length; at += 100_000) {
      client.socket.write(bytes.subarray(at, at + 100_000));
      await new Promise((resolve) => setTimeout(resolve, 350));
    }
    await client.until(/HTTP\/1\.1 201 Created/);
    client.destroy();
    await assertCounted(service, 'io_timeouts_total{op="put"}', 0);
  });

  test('a write that finds no worker: 504, and its place in the queue is given back', async () => {
    await using service = await startService({ flags: ['--storage.put_workers=1', '--storage.put_wait=100ms'] });
    const all = await service.allow();
    const holder = await RawClient.open(service.port);
    // Of unknown length: a small body would be complete before it takes a worker.
    holder.head('POST', '/o', { 'Transfer-Encoding': 'chunked', ...all });
    holder.socket.write('5\r\n12345\r\n');
    await eventually('the worker is taken', () => service.storage.ingress.admission.inflight === 1);
    assertRefusal(await service.send('POST', '/o', { body: 'x', headers: all }), 504, 'timeout');
    await assertCounted(service, 'io_timeouts_total{op="wait"}');
    await assertCounted(service, 'queue_depth{queue="work"}', 0);
    holder.socket.write('5\r\n67890\r\n0\r\n\r\n');
    await holder.until(/201 Created/);
    holder.destroy();
    assert.equal((await service.send('POST', '/o', { body: 'x', headers: all })).status, 201);
  });

  test('a body that stops coming: 408', async () => {
    await using service = await startService({ flags: ['--read_timeout=200ms'] });
    const client = await RawClient.open(service.port);
    client.head('POST', '/o', { 'Content-Length': 10, ...(await service.allow()) });
    client.socket.write('12345');
    const text = await client.rest();
    assert.match(text, /^HTTP\/1\.1 408 /);
    assert.match(text, /"code":"request_timeout"/);
    await assertCounted(service, 'io_timeouts_total{op="read"}');
  });
});

/** The whole load comes from one address. */
const FROM_ONE = ['--server.inflight_per_ip=1000'];

describe('load', () => {
  test('more reads than may wait: 429 with Retry-After', async () => {
    const flags = [
      '--storage.get_workers=1',
      '--storage.get_deadline=20s',
      '--server.connection_limit_per_ip=1000',
      ...FROM_ONE,
    ];
    await using on = await withFaultyDisk(flags);
    const { service, disk, path } = on;
    disk.hold('read');
    const replies = Array.from({ length: 257 }, () => service.send('GET', path));
    await eventually('all places are taken', async () => (await service.metric('queue_depth{queue="work"}')) === 256);
    // [storage I-9]
    assertRefusal(await service.send('GET', path), 429, 'busy');
    await assertCounted(service, 'busy_rejections_total{queue="work",endpoint="get"}');
    assert.equal((await service.send('GET', '/healthz')).status, 200, 'health does not wait in a queue');
    assert.equal((await service.send('POST', '/o', { body: 'x', headers: await service.allow() })).status, 201);
    disk.release('read');
    for (const reply of await Promise.all(replies)) assert.equal(reply.status, 200);
  });

  test('more writes than may wait: 429 with Retry-After, and reads go on', async () => {
    const flags = [
      '--storage.put_workers=1',
      '--storage.put_wait=20s',
      '--server.connection_limit_per_ip=1000',
      ...FROM_ONE,
    ];
    await using on = await withFaultyDisk(flags);
    const { service, disk, path } = on;
    const all = await service.allow();
    const post = (text: string): ReturnType<TestService['send']> =>
      service.send('POST', '/o', { body: text, headers: all });
    disk.hold('sync');
    const replies = Array.from({ length: 257 }, (_unused, at) => post(`body ${at}`));
    await eventually('all places are taken', async () => (await service.metric('queue_depth{queue="work"}')) === 256);
    assertRefusal(await post('one too many'), 429, 'busy');
    await assertCounted(service, 'busy_rejections_total{queue="work",endpoint="put"}');
    assert.equal((await service.send('GET', path)).status, 200);
    disk.release('sync');
    for (const reply of await Promise.all(replies)) assert.equal(reply.status, 201);
  });

  test('more requests at once than allowed: 429', async () => {
    await using on = await withFaultyDisk(['--server.max_inflight=1']);
    const { service, disk, path } = on;
    disk.hold('read');
    const held = service.send('GET', path);
    await eventually('one is in flight', () => service.storage.ingress.admission.inflight === 1);
    assertRefusal(await service.send('GET', path), 429, 'inflight_limit');
    disk.release('read');
    assert.equal((await held).status, 200);
  });
});

describe('size', () => {
  test('an object that is too large, by its declared or actual size: 413, nothing is kept', async () => {
    await using service = await startService({ flags: ['--storage.object_bytes_max=200KiB'] });
    const all = await service.allow();
    const most = bytesOf(200 * KIB, 7);
    assert.equal((await service.send('PUT', pathOf(most), { body: most, headers: all })).status, 201);
    const bytes = bytesOf(200 * KIB + 1, 8);
    for (const headers of [all, { ...all, 'transfer-encoding': 'chunked' }]) {
      const init = { body: bytes, headers };
      // [storage I-10]
      assertRefusal(await service.send('PUT', pathOf(bytes), init), 413, 'payload_too_large');
      assertRefusal(await service.send('POST', '/o', init), 413, 'payload_too_large');
    }
    assert.equal((await service.send('GET', pathOf(bytes))).status, 404);
    await assertCounted(service, 'rejected_total{reason="payload_too_large"}', 4);
    // A declared length above the limit is refused before the body is sent.
    const client = await RawClient.open(service.port);
    client.head('POST', '/o', { 'Content-Length': 200 * KIB + 1, Expect: '100-continue', ...all });
    await client.until(/^HTTP\/1\.1 413 /);
    client.destroy();
  });

  test('a body that expands too much: 413, at the cap', async () => {
    await using service = await startService();
    const headers = { ...(await service.allow()), 'content-encoding': 'gzip' };
    const bomb = gzipSync(Buffer.alloc(20 * MIB));
    assertRefusal(await service.send('POST', '/o', { body: bomb, headers }), 413, 'decompress_cap');
    const large = gzipSync(bytesOf(11 * MIB, 9), { level: 0 });
    assertRefusal(await service.send('POST', '/o', { body: large, headers }), 413, 'decompress_cap');
    await assertCounted(service, 'rejected_total{reason="decompress_cap"}', 2);
  });

  test('memory that is full: 507, and /readyz?lane=put reports it', async () => {
    await using service = await startService({ flags: [...AMNESIA, '--amnesia.bytes_max=1MiB'] });
    const all = await service.allow();
    const kept = bytesOf(500 * KIB, 10);
    await service.put(kept);
    const bytes = bytesOf(600 * KIB, 11);
    const reply = await service.send('PUT', pathOf(bytes), { body: bytes, headers: all });
    assertRefusal(reply, 507, 'storage_full');
    assert.equal(reply.problem?.retryable, true);
    assert.equal((await service.send('GET', pathOf(bytes))).status, 404);
    assert.deepEqual((await service.send('GET', pathOf(kept))).body, kept);
    await assertCounted(service, 'rejected_total{reason="storage_full"}');
  });
});

describe('state', () => {
  test('a service that drains: 503, for reads and writes, and /readyz too', async () => {
    await using on = await withFaultyDisk([]);
    const { service, disk, path } = on;
    disk.hold('read');
    const held = service.send('GET', path);
    await eventually('one is in flight', () => disk.waiting.read === 1);
    const drained = service.storage.drain();
    assertRefusal(await service.send('GET', path), 503, 'draining');
    assertRefusal(await service.send('POST', '/o', { body: 'x', headers: await service.allow() }), 503, 'draining');
    assert.equal((await service.send('GET', '/readyz')).status, 503);
    assert.equal((await service.send('GET', '/healthz')).status, 200);
    disk.release('read');
    assert.equal((await held).status, 200, 'an accepted request is answered');
    await drained;
  });
});
