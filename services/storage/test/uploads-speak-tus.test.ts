/** The contract of uploads: every request of tus 1.0 and every way to get it wrong. The same on disk and in memory. */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { addressOf, assertRefusal, type Reply, type SendInit } from '@ron/testkit/service';
import { AMNESIA, startService, type TestService } from './support.ts';
import { bytesOf, eventually, KIB, MIB } from '@ron/testkit';

const TUS = { 'tus-resumable': '1.0.0' };
const BYTES_TYPE = { 'content-type': 'application/offset+octet-stream' };
const base64 = (text: string): string => Buffer.from(text).toString('base64');

for (const [mode, flags] of Object.entries({ 'on disk': [], 'in memory': AMNESIA })) {
  describe(mode, () => {
    let service: TestService;
    let all: { authorization: string };
    before(async () => {
      service = await startService({ flags: [...flags, '--storage.object_bytes_max=64MiB', '--uploads.max=20'] });
      all = await service.allow();
    });
    after(() => service[Symbol.asyncDispose]());

    const send = (method: string, path: string, init: SendInit = {}): Promise<Reply> =>
      service.send(method, path, { ...init, headers: { ...all, ...TUS, ...init.headers } });
    const create = async (size: number, headers: Readonly<Record<string, string>> = {}): Promise<string> => {
      const reply = await send('POST', '/uploads', { headers: { 'upload-length': String(size), ...headers } });
      assert.equal(reply.status, 201, reply.text);
      return reply.headers.location!;
    };
    const patch = (path: string, offset: number, body: Uint8Array, headers = {}): Promise<Reply> =>
      send('PATCH', path, { body, headers: { ...BYTES_TYPE, 'upload-offset': String(offset), ...headers } });
    const offsetOf = async (path: string): Promise<number> =>
      Number((await send('HEAD', path)).headers['upload-offset']);
    const durability = `fsynced=${mode === 'on disk' ? 1 : 0}; copies=1; target=1`;

    test('OPTIONS states the supported version and extensions', async () => {
      const reply = await send('OPTIONS', '/uploads');
      assert.equal(reply.status, 204);
      assert.equal(reply.headers['tus-version'], '1.0.0');
      assert.equal(reply.headers['tus-max-size'], String(64 * MIB));
      const extensions = 'creation,creation-with-upload,creation-defer-length,expiration,termination';
      assert.equal(reply.headers['tus-extension'], extensions);
    });

    test('created, sent in pieces of any size, and then an object', async () => {
      const bytes = bytesOf(300_000, 1);
      const metadata = `filename ${base64('a.bin')},filetype ${base64('application/x-upload')},empty`;
      const created = await send('POST', '/uploads', {
        headers: { 'upload-length': String(bytes.length), 'upload-metadata': metadata },
      });
      assert.equal(created.status, 201);
      assert.equal(created.headers['tus-resumable'], '1.0.0');
      assert.match(created.headers.location!, /^\/uploads\/[0-9a-f]{32}$/);
      assert.equal(created.headers['ron-address'], undefined);
      const expires_ms = Date.parse(String(created.headers['upload-expires']));
      assert.ok(Math.abs(expires_ms - Date.now() - 86_400_000) < 60_000);
      const path = created.headers.location!;
      let offset = 0;
      for (const length of [1, 0, 99_999, 65_536, 60_000, 300_000]) {
        const piece = bytes.subarray(offset, offset + length);
        const reply = await patch(path, offset, piece);
        assert.equal(reply.status, 204, reply.text);
        offset += piece.length;
        assert.equal(reply.headers['upload-offset'], String(offset));
        assert.equal(reply.headers['tus-resumable'], '1.0.0');
        assert.ok(reply.headers['upload-expires']);
        const isLast = offset === bytes.length;
        assert.equal(reply.headers['ron-address'], isLast ? addressOf(bytes) : undefined);
        assert.equal(reply.headers['ron-durability'], isLast ? durability : undefined);
        const head = await send('HEAD', path);
        assert.equal(head.status, 200);
        assert.equal(head.headers['upload-offset'], String(offset));
        assert.equal(head.headers['upload-length'], String(bytes.length));
        assert.equal(head.headers['upload-metadata'], metadata);
        assert.equal(head.headers['cache-control'], 'no-store');
        assert.equal(head.headers['ron-address'], isLast ? addressOf(bytes) : undefined);
        const shown = JSON.parse((await send('GET', path)).text);
        assert.deepEqual(
          [shown.offset, shown.size, shown.address],
          [offset, bytes.length, isLast ? addressOf(bytes) : undefined],
        );
      }
      const reply = await service.send('GET', `/o/${addressOf(bytes)}`);
      assert.ok(reply.body.equals(bytes));
      assert.equal(reply.headers['content-type'], 'application/x-upload');
      assertRefusal(await patch(path, offset, Buffer.alloc(0)), 409, 'conflict');
    });

    test('created with its first bytes, or with all of them, or with none to come', async () => {
      const bytes = bytesOf(200_000, 2);
      const begin = (length: number): Promise<Reply> =>
        send('POST', '/uploads', {
          body: bytes.subarray(0, length),
          headers: { ...BYTES_TYPE, 'upload-length': String(bytes.length) },
        });
      const first = await begin(70_000);
      assert.deepEqual([first.status, first.headers['upload-offset']], [201, '70000']);
      const last = await patch(first.headers.location!, 70_000, bytes.subarray(70_000));
      assert.equal(last.headers['ron-address'], addressOf(bytes));
      const whole = await begin(200_000);
      assert.deepEqual([whole.status, whole.headers['upload-offset']], [201, '200000']);
      assert.equal(whole.headers['ron-address'], addressOf(bytes));
      const none = await send('POST', '/uploads', { headers: { 'upload-length': '0' } });
      assert.deepEqual([none.status, none.headers['ron-address']], [201, addressOf(Buffer.alloc(0))]);
    });

    test('the size may be declared later', async () => {
      const bytes = bytesOf(100_000, 3);
      const created = await send('POST', '/uploads', { headers: { 'upload-defer-length': '1' } });
      assert.equal(created.status, 201);
      const path = created.headers.location!;
      assert.equal((await patch(path, 0, bytes.subarray(0, 50_000))).status, 204);
      const head = await send('HEAD', path);
      assert.deepEqual([head.headers['upload-length'], head.headers['upload-defer-length']], [undefined, '1']);
      const last = await patch(path, 50_000, bytes.subarray(50_000), { 'upload-length': '100000' });
      assert.equal(last.headers['ron-address'], addressOf(bytes));
      const other = (await send('POST', '/uploads', { headers: { 'upload-defer-length': '1' } })).headers.location!;
      await patch(other, 0, bytes.subarray(0, 10), { 'upload-length': '20' });
      assertRefusal(await patch(other, 10, bytes.subarray(0, 1), { 'upload-length': '30' }), 409, 'conflict');
    });

    test('terminated', async () => {
      const path = await create(1000);
      await patch(path, 0, bytesOf(500));
      const reply = await send('DELETE', path);
      assert.equal(reply.status, 204);
      assert.equal(reply.headers['tus-resumable'], '1.0.0');
      assert.equal((await send('HEAD', path)).status, 404);
      assertRefusal(await send('GET', path), 404, 'not_found');
      assertRefusal(await send('DELETE', path), 404, 'not_found');
      assertRefusal(await patch(path, 500, bytesOf(500)), 404, 'not_found');
    });

    test('PATCH and DELETE by POST', async () => {
      const bytes = bytesOf(1000, 4);
      const path = await create(bytes.length);
      const reply = await send('POST', path, {
        body: bytes,
        headers: { ...BYTES_TYPE, 'upload-offset': '0', 'x-http-method-override': 'PATCH' },
      });
      assert.deepEqual([reply.status, reply.headers['ron-address']], [204, addressOf(bytes)]);
      assert.equal((await send('POST', path, { headers: { 'x-http-method-override': 'DELETE' } })).status, 204);
      assert.equal((await send('HEAD', path)).status, 404);
      assertRefusal(await send('POST', path), 400, 'bad_request');
    });

    test('a stated address is enforced', async () => {
      const bytes = bytesOf(1000, 5);
      const claim = { 'upload-metadata': `address ${base64(addressOf(bytes))}` };
      const good = await patch(await create(1000, claim), 0, bytes);
      assert.equal(good.headers['ron-address'], addressOf(bytes));
      const other = bytesOf(1000, 6);
      const path = await create(1000, claim);
      assertRefusal(await patch(path, 0, other), 409, 'address_mismatch');
      assert.equal((await service.send('GET', `/o/${addressOf(other)}`)).status, 404);
    });

    test('a capability for some addresses requires a stated address from the beginning', async () => {
      const bytes = bytesOf(1000, 7);
      const headers = await service.allow({ caveats: [`address ^= ${addressOf(bytes).slice(0, 8)}`] });
      const claim = (address: string): SendInit => ({
        headers: { ...headers, 'upload-length': '1000', 'upload-metadata': `address ${base64(address)}` },
      });
      assertRefusal(
        await send('POST', '/uploads', { headers: { ...headers, 'upload-length': '1000' } }),
        403,
        'forbidden',
      );
      const elsewhere = `b3:${'0'.repeat(64)}`;
      assertRefusal(await send('POST', '/uploads', claim(elsewhere)), 403, 'forbidden');
      const created = await send('POST', '/uploads', claim(addressOf(bytes)));
      assert.equal(created.status, 201);
      const path = created.headers.location!;
      assert.equal((await patch(path, 0, bytes.subarray(0, 400), headers)).status, 204);
      assert.equal((await send('HEAD', path, { headers })).status, 200);
      const last = await patch(path, 400, bytes.subarray(400), headers);
      assert.deepEqual([last.status, last.headers['ron-address']], [204, addressOf(bytes)]);
      const foreign = await create(1000);
      assertRefusal(await patch(foreign, 0, bytes, headers), 403, 'forbidden');
      assertRefusal(await send('GET', foreign, { headers }), 403, 'forbidden');
      assertRefusal(await send('DELETE', foreign, { headers }), 403, 'forbidden');
    });

    test('a capability that restricts a body cannot be used', async () => {
      const headers = await service.allow({ caveats: ['bytes <= 10'] });
      const path = await create(10);
      assertRefusal(await patch(path, 0, bytesOf(5), headers), 403, 'forbidden');
      assert.equal(await offsetOf(path), 0);
    });

    describe('wrong', () => {
      test('without the scope', async () => {
        const path = await create(10);
        const headers = await service.allow({ scopes: ['storage:get', 'storage:pin', 'storage:admin'] });
        for (const [method, target] of [
          ['OPTIONS', '/uploads'],
          ['POST', '/uploads'],
          ['GET', path],
          ['PATCH', path],
          ['DELETE', path],
          ['POST', path],
        ] as const) {
          const reply = await service.send(method, target, { headers: TUS });
          assertRefusal(reply, 401, 'unauthorized');
          assert.equal(reply.headers['tus-resumable'], '1.0.0', 'refusals speak tus as well');
          assertRefusal(await send(method, target, { headers }), 403, 'forbidden');
        }
        assert.equal((await service.send('HEAD', path, { headers: TUS })).status, 401);
      });

      test('another version', async () => {
        const path = await create(10);
        for (const [method, target] of [
          ['POST', '/uploads'],
          ['GET', path],
          ['PATCH', path],
          ['DELETE', path],
        ] as const) {
          for (const version of [{ 'tus-resumable': '0.2.2' }, {}]) {
            const reply = await service.send(method, target, { headers: { ...all, ...version, 'upload-length': '1' } });
            assertRefusal(reply, 412, 'precondition_failed');
            assert.equal(reply.headers['tus-version'], '1.0.0');
          }
        }
      });

      test('a size that is invalid, too large or missing', async () => {
        const begin = (headers: Readonly<Record<string, string>>): Promise<Reply> =>
          send('POST', '/uploads', { headers });
        for (const size of ['-1', 'x', '1e3', '1.5', ' ', '9999999999999999']) {
          assertRefusal(await begin({ 'upload-length': size }), 400, 'bad_request');
        }
        assertRefusal(await begin({}), 400, 'bad_request');
        assertRefusal(await begin({ 'upload-length': '1', 'upload-defer-length': '1' }), 400, 'bad_request');
        assertRefusal(await begin({ 'upload-defer-length': '2' }), 400, 'bad_request');
        assertRefusal(await begin({ 'upload-length': String(64 * MIB + 1) }), 413, 'payload_too_large');
      });

      test('metadata that is invalid or too long', async () => {
        const begin = (metadata: string): Promise<Reply> =>
          send('POST', '/uploads', { headers: { 'upload-length': '1', 'upload-metadata': metadata } });
        for (const metadata of ['a b c', 'a !', 'a YQ', 'a YQ==,a YQ==', ',', `address ${base64('x')}`]) {
          assertRefusal(await begin(metadata), 400, 'bad_request');
        }
        assertRefusal(await begin(`filetype ${base64('no type')}`), 415, 'unsupported_media');
        assertRefusal(await begin(`a ${base64('x'.repeat(7000))}`), 413, 'payload_too_large');
      });

      test('an offset that is wrong or invalid', async () => {
        const path = await create(1000);
        await patch(path, 0, bytesOf(100));
        for (const offset of [0, 99, 101, 1000]) assertRefusal(await patch(path, offset, bytesOf(10)), 409, 'conflict');
        assertRefusal(await send('PATCH', path, { body: 'x', headers: BYTES_TYPE }), 400, 'bad_request');
        const bad = await send('PATCH', path, { body: 'x', headers: { ...BYTES_TYPE, 'upload-offset': '-1' } });
        assertRefusal(bad, 400, 'bad_request');
        assert.equal(await offsetOf(path), 100);
      });

      test('bytes of another type, or encoded', async () => {
        const path = await create(1000);
        const typed = (headers: Readonly<Record<string, string>>): Promise<Reply> =>
          send('PATCH', path, { body: 'x', headers: { 'upload-offset': '0', ...headers } });
        assertRefusal(await typed({ 'content-type': 'application/octet-stream' }), 415, 'unsupported_media');
        assertRefusal(await typed({}), 415, 'unsupported_media');
        assertRefusal(await typed({ ...BYTES_TYPE, 'content-encoding': 'gzip' }), 415, 'unsupported_media');
        const begun = await send('POST', '/uploads', { body: 'x', headers: { 'upload-length': '1' } });
        assertRefusal(begun, 415, 'unsupported_media');
        assert.equal(await offsetOf(path), 0);
      });

      test('more bytes than were declared, by length or without one', async () => {
        const path = await create(500_000);
        assertRefusal(await patch(path, 0, bytesOf(500_001)), 413, 'payload_too_large');
        assert.equal(await offsetOf(path), 0, 'refused before they were read');
        const chunked = { 'transfer-encoding': 'chunked' };
        assertRefusal(await patch(path, 0, bytesOf(500_001), chunked), 413, 'payload_too_large');
        assert.ok((await offsetOf(path)) <= 500_000);
        const begun = await send('POST', '/uploads', {
          body: bytesOf(101),
          headers: { ...BYTES_TYPE, 'upload-length': '100' },
        });
        assertRefusal(begun, 413, 'payload_too_large');
      });

      test('an unknown upload, and unknown methods', async () => {
        for (const id of ['0'.repeat(32), 'x', '..%2f']) {
          const reply = await send('GET', `/uploads/${id}`);
          assert.ok(reply.status === 404 || reply.status === 400);
        }
        assertRefusal(await send('PUT', '/uploads'), 405, 'method_not_allowed');
        assertRefusal(await send('PUT', `/uploads/${'0'.repeat(32)}`), 405, 'method_not_allowed');
      });

      test('more uploads than the limit', async () => {
        const paths: string[] = [];
        let reply: Reply;
        for (;;) {
          reply = await send('POST', '/uploads', { headers: { 'upload-length': '10' } });
          if (reply.status !== 201) break;
          paths.push(reply.headers.location!);
        }
        assertRefusal(reply, 429, 'busy');
        assert.equal(await service.metric('storage_uploads{state="open"}'), 20);
        for (const path of paths) assert.equal((await send('DELETE', path)).status, 204);
        await create(10);
      });
    });

    test('uploads of the same bytes at the same time', async () => {
      const bytes = bytesOf(500 * KIB, 13);
      const paths = await Promise.all([1, 2, 3].map(() => create(bytes.length)));
      const replies = await Promise.all(paths.map((path) => patch(path, 0, bytes)));
      for (const reply of replies) assert.equal(reply.headers['ron-address'], addressOf(bytes));
      assert.ok((await service.send('GET', `/o/${addressOf(bytes)}`)).body.equals(bytes));
    });
  });
}

test('an upload without appends expires', async () => {
  await using service = await startService({ flags: ['--uploads.expiry=1s'] });
  const headers = { ...(await service.allow()), ...TUS };
  const created = await service.send('POST', '/uploads', { headers: { ...headers, 'upload-length': '100' } });
  const path = created.headers.location!;
  assert.equal((await service.send('HEAD', path, { headers })).status, 200);
  await eventually('it expires', async () => (await service.send('HEAD', path, { headers })).status === 404);
});
