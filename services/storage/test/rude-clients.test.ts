/** Clients that vanish, stop reading, or come at the same time: other clients are not affected, and nothing is left behind. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { join } from 'node:path';
import { bytesOf, eventually, MIB, tempDir } from '@ron/testkit';
import { addressOf, authorizationFrom, RawClient } from '@ron/testkit/service';
import { keysIn, startProcess } from './process.ts';
import { startService } from './support.ts';

const pathOf = (bytes: Uint8Array): string => `/o/${addressOf(bytes)}`;

test('clients that vanish while they send: in-flight places and leases are released, nothing is visible', async () => {
  await using service = await startService();
  const headers = await service.allow();
  const bytes = bytesOf(4 * MIB);
  const { engine, ingress } = service.storage;
  const clients = await Promise.all(Array.from({ length: 20 }, () => RawClient.open(service.port)));
  for (const [at, client] of clients.entries()) {
    client.head('PUT', pathOf(bytes), { 'Content-Length': bytes.length, ...headers });
    client.socket.write(bytes.subarray(0, 100_000 * (at + 1)));
  }
  await eventually('all are being read', () => ingress.admission.inflight === clients.length);
  await eventually('chunks are leased', () => engine.store.leases.size > 0);
  for (const client of clients) client.destroy();
  await eventually('all places are free', () => ingress.admission.inflight === 0);
  await eventually('all leases are gone', () => engine.store.leases.size === 0);
  assert.equal((await service.send('GET', pathOf(bytes))).status, 404);
  await service.put(bytes);
  assert.ok((await service.send('GET', pathOf(bytes))).body.equals(bytes));
});

test('clients that never read: memory stays flat, and they are cut', async () => {
  await using temp = await tempDir();
  const headers = await authorizationFrom(keysIn(temp.path), 'storage');
  await using storage = await startProcess({
    flags: [
      `--data_dirs=${join(temp.path, 'data')}`,
      `--auth.key_file=${keysIn(temp.path)}`,
      '--storage.cache_bytes=8MiB',
      '--write_timeout=2s',
      '--server.rate_min=256KiB/s',
    ],
  });
  const bytes = bytesOf(64 * MIB, 2);
  assert.equal((await storage.send('PUT', pathOf(bytes), { body: bytes, headers })).status, 201);
  // A first round of concurrent reads, so that one-time allocations are made and V8 has grown its young generation.
  const first = await Promise.all(Array.from({ length: 4 }, () => storage.send('GET', pathOf(bytes))));
  for (const { body } of first) assert.ok(body.equals(bytes));
  const before_bytes = storage.resident_bytes;
  const clients = await Promise.all(Array.from({ length: 24 }, () => RawClient.open(storage.port)));
  for (const client of clients) {
    client.socket.pause();
    client.head('GET', pathOf(bytes));
  }
  let most_bytes = 0;
  await eventually('all of them are cut', async () => {
    most_bytes = Math.max(most_bytes, storage.resident_bytes);
    return (await storage.metric('io_timeouts_total{op="write"}')) >= clients.length;
  });
  const growth_bytes = most_bytes - before_bytes;
  // 4 MiB for each. A buffered object would cost 64.
  assert.ok(growth_bytes < 96 * MIB, `24 clients that do not read cost ${Math.round(growth_bytes / MIB)} MiB`);
  // The scrape itself is the one that is left.
  await eventually('their places are free', async () => (await storage.metric('http_requests_inflight')) === 0);
  for (const client of clients) client.destroy();
  assert.equal((await storage.send('HEAD', pathOf(bytes))).status, 200);
});

test('two writers of the same object: both get a success, and it is stored', async () => {
  await using service = await startService();
  const headers = await service.allow();
  for (const [at, size] of [10, 65_536, 1_000_000].entries()) {
    const bytes = bytesOf(size, at + 10);
    const replies = await Promise.all(
      Array.from({ length: 8 }, () => service.send('PUT', pathOf(bytes), { body: bytes, headers })),
    );
    for (const reply of replies) assert.ok(reply.status === 200 || reply.status === 201, reply.text);
    assert.ok(replies.some((reply) => reply.status === 201));
    assert.ok((await service.send('GET', pathOf(bytes))).body.equals(bytes));
  }
  assert.equal(service.storage.engine.store.leases.size, 0);
});

test('a writer with the right bytes and one with wrong bytes for the same address', async () => {
  await using service = await startService();
  const headers = await service.allow();
  const right = bytesOf(1_000_000, 20);
  const wrong = Buffer.from(right);
  wrong[999_999]! ^= 1;
  const [good, bad] = await Promise.all(
    [right, wrong].map((body) => service.send('PUT', pathOf(right), { body, headers })),
  );
  assert.equal(good!.status, 201);
  assert.equal(bad!.status, 409);
  assert.ok((await service.send('GET', pathOf(right))).body.equals(right));
  assert.equal((await service.send('GET', pathOf(wrong))).status, 404);
});
