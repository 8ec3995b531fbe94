/** A streamed body is stored as a whole or not at all, at the pace of storage. */
import assert from 'node:assert/strict';
import { hash } from 'node:crypto';
import { describe, test } from 'node:test';
import type { IncomingMessage } from '@ron/kernel/http';
import { bytesOf, eventually, KIB, MIB } from '@ron/testkit';
import { addressOf, RawClient } from '@ron/testkit/service';
import { fakeStorage, startBridge } from './support.ts';

async function begin(port: number, token: string, length: number): Promise<RawClient> {
  const client = await RawClient.open(port);
  client.head('POST', '/put', { Authorization: `Bearer ${token}`, 'Content-Length': length });
  return client;
}

/** Whether a request reached its end at storage. */
async function isComplete(request: IncomingMessage): Promise<boolean> {
  request.resume();
  await eventually('the request is over', () => request.closed);
  return request.complete;
}

describe('a stream', () => {
  test('that its client aborts, at any place, stores nothing', async (t) => {
    const bridge = await startBridge(t);
    const token = await bridge.client();
    const body = bytesOf(2 * MIB, 5);
    for (const sent of [0, 1, 64 * KIB, MIB, 2 * MIB - 1]) {
      const client = await begin(bridge.port, token, body.length);
      client.socket.write(body.subarray(0, sent));
      await eventually('the bytes were sent', () => client.socket.writableLength === 0);
      client.destroy();
    }
    const storage = bridge.upstreams.storage;
    await eventually('no request is left', async () => (await bridge.metric('http_requests_inflight')) === 0);
    assert.ok(!(await bridge.holds(body)));
    assert.ok(!storage.isInBreach && storage.problem === undefined, 'a client that leaves is not a failure of storage');
    assert.equal((await bridge.put(body)).status, 201);
  });

  test('[interop I-5] that its client aborts ends the request to storage at once', async (t) => {
    const fake = await fakeStorage(t, () => undefined);
    const bridge = await startBridge(t, { storage_socket: fake.path });
    const client = await begin(bridge.port, await bridge.client(), 32 * MIB);
    client.socket.write(bytesOf(256 * KIB));
    await eventually('storage gets it', () => fake.requests.length === 1);
    client.destroy();
    const began_ms = performance.now();
    await eventually('no work is left', async () => (await bridge.metric('http_requests_inflight')) === 0);
    assert.ok(performance.now() - began_ms < 3000, 'not by the limit on a stuck storage');
    assert.equal(await isComplete(fake.requests[0]!), false);
    assert.equal(bridge.upstreams.storage.problem, undefined, 'no failure of storage');
  });

  for (const end of ['expires', 'is revoked'] as const)
    test(`whose capability ${end} meanwhile stores nothing`, async (t) => {
      const bridge = await startBridge(t);
      const body = bytesOf(2 * MIB, 8);
      const until_ms = Date.now() + (end === 'expires' ? 1500 : 60_000);
      const client = await begin(bridge.port, await bridge.client([`expires < ${until_ms}`]), body.length);
      client.socket.write(body.subarray(0, MIB));
      await eventually('the stream has begun', async () => (await bridge.metric('http_requests_inflight')) === 1);
      if (end === 'is revoked')
        assert.equal((await bridge.ask('passport', 'POST', '/v1/passport/revoke', { subject: 'alice' })).status, 200);
      const began_ms = Date.now();
      await eventually(
        'the time is over',
        () => Date.now() > Math.max(began_ms + 1500, end === 'expires' ? until_ms : 0),
      );
      client.socket.write(body.subarray(MIB));
      await client.until(/\r\n\r\n/);
      assert.match(client.received, /^HTTP\/1\.1 401 /);
      assert.match(client.received, /x-reason: EXPIRED_TOKEN/i);
      assert.ok(!(await bridge.holds(body)));
      client.destroy();
    });

  test('that stalls is cut and stores nothing', async (t) => {
    const bridge = await startBridge(t, { flags: ['--read_timeout=300ms'] });
    const body = bytesOf(2 * MIB, 6);
    const client = await begin(bridge.port, await bridge.client(), body.length);
    client.socket.write(body.subarray(0, body.length - 1));
    assert.match((await client.until(/^HTTP\/1\.1 \d+/))[0], /408/);
    client.destroy();
    assert.ok(!(await bridge.holds(body)));
  });

  test('whose hash, length or address its capability does not allow never reaches its end at storage', async (t) => {
    const fake = await fakeStorage(t, () => undefined);
    const bridge = await startBridge(t, { storage_socket: fake.path });
    const body = bytesOf(2 * MIB, 7);
    const hashed = `body = sha256:${hash('sha256', 'x', 'hex')}`;
    const long = `bytes <= ${body.length - 1}`;
    const elsewhere = `address ^= b3:${'0'.repeat(64)}`;
    const chunked = { 'transfer-encoding': 'chunked' };
    // With a declared length storage would take the body for complete at its last byte, without a further sign.
    const cases: readonly [caveat: string | undefined, headers: Readonly<Record<string, string>>][] = [
      [hashed, chunked],
      [long, chunked],
      [elsewhere, chunked],
      [hashed, {}],
      [elsewhere, {}],
      [undefined, { 'x-content-b3': '0'.repeat(64) }],
    ];
    for (const [at, [caveat, headers]] of cases.entries()) {
      const token = await bridge.client(caveat === undefined ? [] : [caveat]);
      const reply = bridge.put(body, { token, headers });
      await eventually('storage gets it', () => fake.requests.length === at + 1);
      assert.equal(await isComplete(fake.requests[at]!), false, caveat ?? 'X-Content-B3');
      assert.equal((await reply).status, caveat === undefined ? 409 : 403);
    }
  });

  test('[interop I-9] to a storage that takes no bytes stops the client, and is complete once storage reads', async (t) => {
    const fake = await fakeStorage(t, () => undefined);
    const bridge = await startBridge(t, { storage_socket: fake.path });
    const body = bytesOf(24 * MIB, 8);
    const client = await begin(bridge.port, await bridge.client(), body.length);
    client.socket.write(body);
    await eventually('storage gets it', () => fake.requests.length === 1);
    const [request] = fake.requests as [IncomingMessage];
    let [last, same] = [0, 0];
    await eventually('the client is stopped', () => {
      const { bytesWritten } = client.socket;
      const accepted = bytesWritten - client.socket.writableLength;
      same = accepted === last ? same + 1 : 0;
      last = accepted;
      return same > 20;
    });
    // The buffers of four sockets, and two chunks.
    assert.ok(last < 12 * MIB, `${last} bytes were taken`);
    const pieces: Buffer[] = [];
    for await (const piece of request) pieces.push(piece as Buffer);
    assert.equal(addressOf(Buffer.concat(pieces)), addressOf(body), 'every byte once, in order');
    client.destroy();
  });

  test('[interop I-4] to a storage that stays stuck is a timeout', async (t) => {
    const fake = await fakeStorage(t, () => undefined);
    const bridge = await startBridge(t, { storage_socket: fake.path, flags: ['--write_timeout=300ms'] });
    const reply = await bridge.put(bytesOf(16 * MIB));
    assert.deepEqual([reply.status, reply.headers['x-reason']], [504, 'DOWNSTREAM_UNAVAILABLE'], reply.text);
    assert.equal(await bridge.metric('io_timeouts_total{op="write"}'), 1);
  });
});
