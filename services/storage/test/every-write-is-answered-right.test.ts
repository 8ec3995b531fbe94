/** The contract of the routes that write and pin: status, headers, problem code and receipt of every kind of answer. */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { brotliCompressSync, deflateSync, gzipSync, zstdCompressSync } from 'node:zlib';
import { ABSENT, assertCommon, LARGE, MODES, pathOf, SMALL, startWithObjects } from './stored-objects.ts';
import { addressOf, assertRefusal, type Reply, type SendInit } from '@ron/testkit/service';
import { AMNESIA, type TestService } from './support.ts';
import { bytesOf, KIB } from '@ron/testkit';

for (const [mode, flags] of Object.entries(MODES)) {
  describe(mode, () => {
    let service: TestService;
    let all: { authorization: string };
    const send = (method: string, path: string, init: SendInit = {}): Promise<Reply> =>
      service.send(method, path, { ...init, headers: { ...all, ...init.headers } });
    const fsynced = !flags.includes(AMNESIA[0] as never);
    const durability = { fsynced, copies: 1, target: 1 };
    const durability_header = `fsynced=${fsynced ? 1 : 0}; copies=1; target=1`;

    before(async () => {
      service = await startWithObjects(flags);
      all = await service.allow();
    });
    after(() => service[Symbol.asyncDispose]());

    describe('writing', () => {
      const assertReceipt = (reply: Reply, status: number, bytes: Buffer): void => {
        assert.equal(reply.status, status, reply.text);
        assertCommon(reply);
        assert.deepEqual(JSON.parse(reply.text), { address: addressOf(bytes), size: bytes.length, durability });
        assert.equal(reply.headers.location, pathOf(bytes));
        assert.equal(reply.headers['ron-durability'], durability_header);
      };

      let seed = 100;
      for (const size of [0, 1, 64 * KIB - 1, 64 * KIB, 64 * KIB + 1, 300_000]) {
        test(`PUT and POST of ${size} bytes, and again`, async () => {
          const bytes = bytesOf(size, (seed += 1));
          // The empty object is there already.
          assertReceipt(await send('PUT', pathOf(bytes), { body: bytes }), size === 0 ? 200 : 201, bytes);
          const used = service.storage.engine.volume.stats().used_bytes;
          assertReceipt(await send('PUT', pathOf(bytes), { body: bytes }), 200, bytes);
          assertReceipt(await send('POST', '/o', { body: bytes }), 200, bytes);
          assert.equal(service.storage.engine.volume.stats().used_bytes, used, 'nothing is written twice');
          assert.deepEqual((await service.send('GET', pathOf(bytes))).body, bytes);
          const fresh = bytesOf(size + 1, (seed += 1));
          assertReceipt(await send('POST', '/o', { body: fresh }), 201, fresh);
          assert.deepEqual((await service.send('GET', pathOf(fresh))).body, fresh);
        });
      }

      test('without a length', async () => {
        const bytes = bytesOf(150_000, 7);
        const init = { body: bytes, headers: { 'transfer-encoding': 'chunked' } };
        assertReceipt(await send('POST', '/o', init), 201, bytes);
      });

      test('bytes that do not have the address: 409, and nothing is kept', async () => {
        for (const size of [100, 300_000]) {
          const bytes = bytesOf(size, (seed += 1));
          const other = bytesOf(size, (seed += 1));
          assertRefusal(await send('PUT', pathOf(other), { body: bytes }), 409, 'address_mismatch');
          assert.equal((await service.send('GET', pathOf(bytes))).status, 404);
          assert.equal((await service.send('GET', pathOf(other))).status, 404);
          assertReceipt(await send('PUT', pathOf(bytes), { body: bytes }), 201, bytes);
        }
        assertRefusal(await send('PUT', pathOf(SMALL), { body: 'x' }), 409, 'address_mismatch');
        assert.deepEqual((await service.send('GET', pathOf(SMALL))).body, SMALL);
      });

      test('the media type comes back; the last stated one wins; without one it is bytes', async () => {
        const bytes = bytesOf(10, (seed += 1));
        const type = 'text/html; charset="utf-8"; q=1';
        await send('PUT', pathOf(bytes), { body: bytes, headers: { 'content-type': 'text/plain' } });
        assert.equal((await service.send('GET', pathOf(bytes))).headers['content-type'], 'text/plain');
        const again = await send('PUT', pathOf(bytes), { body: bytes, headers: { 'content-type': type } });
        assert.equal(again.status, 200);
        assert.equal((await service.send('GET', pathOf(bytes))).headers['content-type'], type);
        await send('POST', '/o', { body: bytes });
        assert.equal((await service.send('HEAD', pathOf(bytes))).headers['content-type'], type);
        const bare = bytesOf(11, (seed += 1));
        await send('PUT', pathOf(bare), { body: bare });
        assert.equal((await service.send('GET', pathOf(bare))).headers['content-type'], 'application/octet-stream');
      });

      test('an invalid media type', async () => {
        for (const type of ['text', 'text/', 'a/b c', 'a/b; c="\u00e9"', `a/${'b'.repeat(300)}`]) {
          const reply = await send('POST', '/o', { body: 'x', headers: { 'content-type': type } });
          assertRefusal(reply, 415, 'unsupported_media');
        }
      });

      test('an encoded body is stored decoded', async () => {
        for (const [coding, encode] of Object.entries({
          gzip: gzipSync,
          br: brotliCompressSync,
          zstd: zstdCompressSync,
          identity: (bytes: Buffer) => bytes,
        })) {
          const bytes = bytesOf(100_000, (seed += 1));
          const init = { body: encode(bytes), headers: { 'content-encoding': coding } };
          assertReceipt(await send('PUT', pathOf(bytes), init), 201, bytes);
          const read = await service.send('GET', pathOf(bytes), { headers: { 'accept-encoding': coding } });
          assert.deepEqual(read.body, bytes);
          assert.equal(read.headers['content-encoding'], undefined);
        }
      });

      test('another encoding, several of them, and one that is broken', async () => {
        const bytes = bytesOf(1000, 9);
        const put = (coding: string, body: Buffer): Promise<Reply> =>
          send('POST', '/o', { body, headers: { 'content-encoding': coding } });
        assertRefusal(await put('deflate', deflateSync(bytes)), 415, 'unsupported_media');
        assertRefusal(await put('gzip, gzip', gzipSync(gzipSync(bytes))), 415, 'unsupported_media');
        assertRefusal(await put('gzip', gzipSync(bytes).subarray(0, 500)), 400, 'bad_request');
        assertRefusal(await put('br', bytes), 400, 'bad_request');
        assert.equal((await service.send('GET', pathOf(bytes))).status, 404);
      });
    });

    describe('pins', () => {
      test('set and removed, idempotently', async () => {
        const path = `${pathOf(SMALL)}/pin`;
        for (const method of ['PUT', 'PUT', 'DELETE', 'DELETE']) {
          const reply = await send(method, path);
          assert.equal(reply.status, 204, reply.text);
          assert.equal(reply.body.length, 0);
          assertCommon(reply);
          assert.equal(service.storage.engine.store.isPinned(addressOf(SMALL) as never), method === 'PUT');
        }
      });

      test('of an object that is not stored', async () => {
        assertRefusal(await send('PUT', `/o/${ABSENT}/pin`), 404, 'not_found');
        assertRefusal(await send('DELETE', `/o/${ABSENT}/pin`), 404, 'not_found');
        assertRefusal(await send('GET', `${pathOf(SMALL)}/pin`), 405, 'method_not_allowed');
      });
    });

    test('the volumes', async () => {
      const reply = await send('GET', '/admin/volumes');
      assert.equal(reply.status, 200);
      const { volumes, cache } = JSON.parse(reply.text);
      assert.equal(volumes.length, 1);
      assert.equal(volumes[0].condition, 'ok');
      assert.equal(volumes[0].name, fsynced ? service.dir : 'memory');
      assert.ok(volumes[0].used_bytes > LARGE.length);
      assert.equal(cache.bytes_max, 64 * KIB * KIB);
      assert.equal((await send('HEAD', '/admin/volumes')).headers['content-length'], reply.headers['content-length']);
    });
  });
}
