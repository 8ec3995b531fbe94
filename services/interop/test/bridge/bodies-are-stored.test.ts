/** `POST /put` stores bodies of every size and framing, and answers with the receipt of storage. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { brotliCompressSync, gzipSync, zstdCompressSync } from 'node:zlib';
import { inspectToken } from '@ron/auth';
import { assertSameBytes, bytesOf, eventually, KIB, MIB } from '@ron/testkit';
import { addressOf, assertRefusal, RawClient } from '@ron/testkit/service';
import { fakeStorage, startBridge } from './support.ts';

/** A chunked request in pieces of this size. */
async function sendChunked(port: number, token: string, pieces: readonly Uint8Array[], more = ''): Promise<string> {
  const client = await RawClient.open(port);
  const head = `POST /put HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${token}\r\n${more}`;
  client.write(`${head}Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n`);
  for (const piece of pieces) {
    client.write(`${piece.length.toString(16)}\r\n`);
    client.socket.write(piece);
    client.write('\r\n');
  }
  client.write('0\r\n\r\n');
  return await client.rest();
}

describe('put', () => {
  test('bodies around every boundary are stored, and the receipt names their address', async (t) => {
    const bridge = await startBridge(t);
    for (const size of [0, 1, 64 * KIB, 64 * KIB + 1, MIB - 1, MIB, MIB + 1, 3 * MIB + 7]) {
      const body = bytesOf(size, size + 1);
      const reply = await bridge.put(body, { headers: { 'content-type': 'image/png' } });
      assert.equal(reply.status, 201, `${size}: ${reply.text}`);
      const { address, durability } = reply.json;
      assert.deepEqual([address, reply.json.size], [addressOf(body), size]);
      assert.equal(reply.headers.location, `/o/${address}`);
      assert.match(String(reply.headers['ron-durability']), /^fsynced=[01]; copies=1; target=1$/);
      assert.equal(durability.copies, 1);
      const read = await bridge.send('GET', `/o/${address}`);
      assertSameBytes(read.body, body);
      assert.equal(read.headers['content-type'], 'image/png');
    }
    assert.equal((await bridge.put('x')).status, 201);
    assert.equal((await bridge.put('x')).status, 200, 'it is stored already, as storage says');
  });

  test('[interop I-10] chunked bodies are stored however they are framed', async (t) => {
    const bridge = await startBridge(t);
    const token = await bridge.client();
    for (const [size, piece] of [
      [0, 1],
      [100, 1],
      [70 * KIB, 1000],
      [300 * KIB, 64 * KIB],
      [2 * MIB, 100_000],
    ] as const) {
      const body = bytesOf(size, size + 1);
      const pieces = Array.from({ length: Math.ceil(size / piece) }, (_, at) =>
        body.subarray(at * piece, (at + 1) * piece),
      );
      assert.match(await sendChunked(bridge.port, token, pieces), /^HTTP\/1\.1 201 /, `${size}`);
      assert.ok(await bridge.holds(body), `${size}`);
    }
  });

  test('[interop I-10] compressed bodies are stored decoded, up to a ratio of 10 and 10 MiB', async (t) => {
    const bridge = await startBridge(t);
    const codings = { gzip: gzipSync, br: brotliCompressSync, zstd: zstdCompressSync };
    const zeros = Buffer.alloc(5 * MIB);
    for (const [at, [coding, encode]] of Object.entries(codings).entries()) {
      const headers = { 'content-encoding': coding };
      for (const body of [bytesOf(1000, at + 1), bytesOf(2 * MIB, at + 1)]) {
        const reply = await bridge.put(encode(body), { headers });
        assert.deepEqual([reply.status, reply.json.address], [201, addressOf(body)], `${coding}: ${reply.text}`);
      }
      const bomb = await bridge.put(encode(zeros), { headers });
      assertRefusal(bomb, 413, 'decompress_cap');
      assert.equal(bomb.headers['x-reason'], 'DECOMP_LIMIT');
    }
    const large = bytesOf(10 * MIB + 1);
    assert.equal((await bridge.put(gzipSync(large), { headers: { 'content-encoding': 'gzip' } })).status, 413);
    for (const body of [zeros, large]) assert.ok(!(await bridge.holds(body)));
  });

  test('X-Content-B3 binds a body to its address; another body is refused and not stored', async (t) => {
    const bridge = await startBridge(t);
    const token = await bridge.client();
    for (const size of [10, 3 * MIB]) {
      const [body, other] = [bytesOf(size, 3), bytesOf(size, 4)];
      for (const stated of [addressOf(body), addressOf(body).slice(3)]) {
        const headers = { 'x-content-b3': stated };
        assertRefusal(await bridge.put(other, { headers }), 409, 'address_mismatch');
        assert.ok(!(await bridge.holds(other)));
      }
      assert.equal((await bridge.put(body, { headers: { 'x-content-b3': addressOf(body) } })).status, 201);
    }
    const chunked = await sendChunked(bridge.port, token, [bytesOf(200_000)], `X-Content-B3: ${'0'.repeat(64)}\r\n`);
    assert.match(chunked, /^HTTP\/1\.1 409 /);
    assert.ok(!(await bridge.holds(bytesOf(200_000))));
    for (const stated of ['', 'b3:', 'A'.repeat(64), `sha256:${'0'.repeat(64)}`, '0'.repeat(63)]) {
      assertRefusal(await bridge.put('x', { headers: { 'x-content-b3': stated } }), 400, 'bad_request');
    }
    const twice = `X-Content-B3: ${'0'.repeat(64)}\r\n`.repeat(2);
    assert.match(await sendChunked(bridge.port, token, [Buffer.from('x')], twice), /^HTTP\/1\.1 400 /);
  });

  test('storage gets a token for this body only, never that of the client', async (t) => {
    const fake = await fakeStorage(t, (request, response) => {
      request.resume();
      request.on('end', () => response.writeHead(507, { 'content-length': 0 }).end());
    });
    const bridge = await startBridge(t, { storage_socket: fake.path });
    const token = await bridge.client(['rate <= 100/s', 'ip in 127.0.0.0/8']);
    const [small, large] = [bytesOf(100), bytesOf(2 * MIB)];
    const sent = async (body: Uint8Array, headers = {}): Promise<readonly [string | undefined, readonly string[]]> => {
      assert.equal((await bridge.put(body, { token, headers })).status, 507);
      const { method, url, headers: got } = fake.requests.at(-1)!;
      assert.ok(!JSON.stringify(got).includes(token));
      const { audience, subject, scopes, texts, chain, expires_ms } = inspectToken(got.authorization!.slice(7));
      assert.deepEqual([audience, subject, scopes], ['storage', 'alice', ['storage:put']]);
      assert.deepEqual(chain, [inspectToken(token).capability_id]);
      assert.ok(expires_ms <= Date.now() + 60_000);
      return [`${method} ${url}`, texts.slice(3)];
    };
    const bound = (body: Uint8Array) => [`PUT /o/${addressOf(body)}`, [`address ^= ${addressOf(body)}`]] as const;
    assert.deepEqual(await sent(small), bound(small));
    assert.deepEqual(await sent(large), ['POST /o', [`bytes <= ${large.length}`]]);
    assert.deepEqual(await sent(large, { 'x-content-b3': addressOf(large) }), bound(large));
    assert.deepEqual(await sent(gzipSync(small), { 'content-encoding': 'gzip' }), bound(small));
    const coded = await sent(gzipSync(large), { 'content-encoding': 'gzip' });
    assert.deepEqual(coded, ['POST /o', [`bytes <= ${10 * MIB}`]]);
    await sendChunked(bridge.port, token, [large]);
    await eventually('the chunked body arrived', () => fake.requests.length === 6);
    const chunked = inspectToken(fake.requests.at(-1)!.headers.authorization!.slice(7)).texts.slice(3);
    assert.deepEqual(chunked, [`bytes <= ${64 * 1024 * MIB}`], 'the largest body');
  });
});
