/** A capability with `body = b3:HASH` accepts the body with that hash and refuses any other before it is stored. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { request } from 'node:http';
import { after, before, describe, test } from 'node:test';
import { gzipSync } from 'node:zlib';
import { bytesOf, KIB } from '@ron/testkit';
import { addressOf, assertRefusal, type Reply, replyOf } from '@ron/testkit/service';
import { FAST_PATH_OFF, startService } from './support.ts';
import type { TestService } from './support.ts';

const EMPTY = Buffer.alloc(0);
/** Gathered before the handler runs; streamed; streamed in several groups of the hash. */
const SIZES = [5, 100 * KIB, 300 * KIB + 7];
const boundTo = (bytes: Uint8Array): string => `body = ${addressOf(bytes)}`;

describe('body caveats in storage', () => {
  let service: TestService;

  before(async () => (service = await startService()));
  after(() => service[Symbol.asyncDispose]());

  const put = async (caveats: string[], body: Uint8Array, path = '/o', more = {}): Promise<Reply> => {
    const headers = { ...(await service.allow({ caveats })), 'content-length': String(body.length), ...more };
    return await service.send(path === '/o' ? 'POST' : 'PUT', path, { body, headers });
  };
  const isStored = async (body: Uint8Array): Promise<boolean> =>
    (await service.send('GET', `/o/${addressOf(body)}`)).status === 200;

  test('the right body is stored, another one is refused and not stored', async () => {
    for (const [at, size] of SIZES.entries()) {
      for (const isNamed of [true, false]) {
        const right = bytesOf(size, 10 + 2 * at + Number(isNamed));
        const wrong = Buffer.from(right);
        wrong[size - 1]! ^= 1;
        const pathOf = (body: Uint8Array): string => (isNamed ? `/o/${addressOf(body)}` : '/o');
        assertRefusal(await put([boundTo(right)], wrong, pathOf(wrong)), 403, 'forbidden');
        assert.equal(await isStored(wrong), false, `${size} bytes`);
        const reply = await put([boundTo(right)], right, pathOf(right));
        assert.equal(reply.status, 201, reply.text);
        assert.equal(await isStored(right), true);
      }
    }
  });

  test('a body in chunks is hashed as it is read, in pieces of any size', async () => {
    for (const pieces of [[bytesOf(3, 21), bytesOf(70 * KIB, 22), bytesOf(1, 23)], [bytesOf(9, 24)], []]) {
      const body = Buffer.concat(pieces);
      const { authorization } = await service.allow({ caveats: [boundTo(body)] });
      const reply = await sendInPieces(service.url, authorization, pieces);
      assert.equal(reply.status, 201, reply.text);
      const longer = await sendInPieces(service.url, authorization, [...pieces, Buffer.from('x')]);
      assertRefusal(longer, 403, 'forbidden');
      assert.equal(await isStored(Buffer.concat([body, Buffer.from('x')])), false);
    }
  });

  test('the hash of a compressed body is that of the decoded bytes', async () => {
    const body = Buffer.concat([bytesOf(80 * KIB, 31), Buffer.alloc(20 * KIB)]);
    const wire = gzipSync(body);
    const encoded = { 'content-encoding': 'gzip' };
    assertRefusal(await put([boundTo(wire)], wire, '/o', encoded), 403, 'forbidden');
    assert.equal(await isStored(body), false);
    const reply = await put([boundTo(body)], wire, '/o', encoded);
    assert.equal(reply.status, 201, reply.text);
    assert.equal(await isStored(body), true);
  });

  test('a ceiling applies to the decoded bytes, even if the compressed body is longer', async () => {
    const body = bytesOf(5000, 35);
    const wire = gzipSync(body);
    assert.ok(wire.length > body.length);
    const encoded = { 'content-encoding': 'gzip' };
    assertRefusal(await put(['bytes <= 4999'], wire, '/o', encoded), 403, 'forbidden');
    assert.equal(await isStored(body), false);
    const reply = await put([boundTo(body), 'bytes <= 5000'], wire, '/o', encoded);
    assert.equal(reply.status, 201, reply.text);
  });

  test('an empty body has a hash, too', async () => {
    assertRefusal(await put([boundTo(Buffer.from('x'))], EMPTY), 403, 'forbidden');
    const reply = await put([boundTo(EMPTY)], EMPTY);
    assert.ok(reply.status === 200 || reply.status === 201, reply.text);
  });

  test('with several hashes and a ceiling, all of them must hold', async () => {
    const body = bytesOf(200, 41);
    const sha256 = `body = sha256:${createHash('sha256').update(body).digest('hex')}`;
    const other = boundTo(Buffer.from('another'));
    assertRefusal(await put([boundTo(body), other], body), 403, 'forbidden');
    assertRefusal(await put([sha256, other], body), 403, 'forbidden');
    assertRefusal(await put([boundTo(body), 'bytes <= 199'], body), 403, 'forbidden');
    assert.equal(await isStored(body), false);
    assert.equal((await put([sha256, boundTo(body), 'bytes <= 200'], body)).status, 201);
  });

  test('uploads by tus are refused: an upload has many bodies, and one hash says nothing about it', async () => {
    const body = bytesOf(50, 51);
    const bound = await service.allow({ caveats: [boundTo(body)] });
    const tus = { 'tus-resumable': '1.0.0' };
    const create = { ...tus, 'upload-length': String(body.length) };
    assertRefusal(await service.send('POST', '/uploads', { headers: { ...create, ...bound } }), 403, 'forbidden');
    const free = await service.allow();
    const created = await service.send('POST', '/uploads', { headers: { ...create, ...free } });
    assert.equal(created.status, 201, created.text);
    const path = created.headers.location!;
    const bytes = { ...tus, 'upload-offset': '0', 'content-type': 'application/offset+octet-stream' };
    assertRefusal(await service.send('PATCH', path, { body, headers: { ...bytes, ...bound } }), 403, 'forbidden');
    assertRefusal(await service.send('DELETE', path, { headers: { ...tus, ...bound } }), 403, 'forbidden');
    const head = await service.send('HEAD', path, { headers: { ...tus, ...free } });
    assert.equal(head.headers['upload-offset'], '0', 'nothing was added');
    assert.equal(await isStored(body), false);
  });

  test('a request without a body is accepted for the hash of no bytes only, and pins nothing otherwise', async () => {
    const address = await service.put(bytesOf(60, 61));
    const pin = async (body: Uint8Array): Promise<Reply> =>
      await service.send('PUT', `/o/${address}/pin`, { headers: await service.allow({ caveats: [boundTo(body)] }) });
    assertRefusal(await pin(Buffer.from('x')), 403, 'forbidden');
    const reply = await pin(EMPTY);
    assert.ok(reply.status < 300, reply.text);
  });
});

test('guarded reads hold a body caveat to no bytes, with the fast path and without', async () => {
  for (const flags of [['--auth.reads=true'], ['--auth.reads=true', ...FAST_PATH_OFF]]) {
    await using service = await startService({ flags });
    const path = `/o/${await service.put(Buffer.from('hello'))}`;
    for (let again = 0; again < 3; again++) {
      const read = async (body: Uint8Array): Promise<Reply> =>
        await service.send('GET', path, { headers: await service.allow({ caveats: [boundTo(body)] }) });
      assert.equal((await read(EMPTY)).status, 200);
      assertRefusal(await read(Buffer.from('hello')), 403, 'forbidden');
    }
  }
});

/** POST /o with `Transfer-Encoding: chunked`, one chunk for each piece. */
function sendInPieces(url: string, authorization: string, pieces: readonly Uint8Array[]): Promise<Reply> {
  return new Promise((resolve, reject) => {
    const { hostname, port } = new URL(url);
    const headers = { authorization, 'transfer-encoding': 'chunked' };
    const req = request({ hostname, port, method: 'POST', path: '/o', headers, agent: false }, (res) => {
      const chunks: Buffer[] = [];
      res.on('data', (chunk: Buffer) => chunks.push(chunk));
      res.on('error', reject);
      res.on('end', () => resolve(replyOf(res.statusCode!, res.headers, Buffer.concat(chunks))));
    });
    req.on('error', reject);
    for (const piece of pieces) req.write(piece);
    req.end();
  });
}
