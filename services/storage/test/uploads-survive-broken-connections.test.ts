/** Connections that break during an upload: received bytes count, and the client resumes. On disk and in memory. */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { addressOf, RawClient, type Reply, type SendInit } from '@ron/testkit/service';
import { AMNESIA, startService, type TestService } from './support.ts';
import { bytesOf, eventually, KIB, MIB } from '@ron/testkit';

const TUS = { 'tus-resumable': '1.0.0' };
const BYTES_TYPE = { 'content-type': 'application/offset+octet-stream' };

for (const [mode, flags] of Object.entries({ 'on disk': [], 'in memory': AMNESIA })) {
  describe(mode, () => {
    let service: TestService;
    let all: { authorization: string };
    before(async () => {
      service = await startService({ flags: [...flags, '--storage.object_bytes_max=64MiB'] });
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

    /** Begins a PATCH over its own connection and sends a part of the announced bytes. */
    const begin = async (path: string, body: Buffer, announced: number): Promise<RawClient> => {
      const client = await RawClient.open(service.port);
      client.head('PATCH', path, {
        ...all,
        ...TUS,
        ...BYTES_TYPE,
        'Upload-Offset': 0,
        'Content-Length': announced,
      });
      client.socket.write(body);
      return client;
    };

    test('bytes that arrived before the client vanished count', async () => {
      const bytes = bytesOf(3 * MIB, 10);
      const path = await create(bytes.length);
      const client = await begin(path, bytes.subarray(0, 2 * MIB), bytes.length);
      await eventually('it is accepted', () => service.storage.ingress.admission.inflight === 1);
      client.socket.end();
      await eventually('its end is noticed', () => service.storage.ingress.admission.inflight === 0);
      const offset = await offsetOf(path);
      // Bytes in Node's buffers when the connection ended are lost; all others must be kept.
      assert.ok(offset <= 2 * MIB && offset >= 2 * MIB - 256 * KIB, `${offset}`);
      const last = await patch(path, offset, bytes.subarray(offset));
      assert.equal(last.headers['ron-address'], addressOf(bytes));
    });

    test('a client that comes back takes over from its dead connection, and no received byte is lost', async () => {
      const bytes = bytesOf(3 * MIB, 11);
      const path = await create(bytes.length);
      const dead = await begin(path, bytes.subarray(0, 2 * MIB), bytes.length);
      await eventually('it was sent', () => dead.socket.writableLength === 0);
      await eventually('it was read', () => service.storage.ingress.admission.inflight === 1);
      // Bytes in the kernel's buffers do not count, so the client queries the offset.
      const offset = await offsetOf(path);
      assert.match(await dead.rest(), /^HTTP\/1\.1 409 /);
      assert.ok(offset > 0 && offset <= 2 * MIB, `${offset}`);
      const last = await patch(path, offset, bytes.subarray(offset));
      assert.equal(last.headers['ron-address'], addressOf(bytes));
    });

    test('a GET does not end a request that appends to the upload', async () => {
      const bytes = bytesOf(200_000, 12);
      const path = await create(bytes.length);
      const client = await begin(path, bytes.subarray(0, 100_000), bytes.length);
      await eventually('it is accepted', () => service.storage.ingress.admission.inflight === 1);
      assert.equal((await send('GET', path)).status, 200);
      client.socket.write(bytes.subarray(100_000));
      await client.until(/HTTP\/1\.1 204 /);
      client.destroy();
    });

    test('terminating an upload ends the request that appends to it', async () => {
      const { leases } = service.storage.engine.store;
      const held = leases.size;
      const path = await create(200_000);
      const client = await begin(path, bytesOf(150_000, 14), 200_000);
      await eventually('it is accepted', () => service.storage.ingress.admission.inflight === 1);
      assert.equal((await send('DELETE', path)).status, 204);
      assert.match(await client.rest(), /^HTTP\/1\.1 409 /);
      assert.equal((await send('HEAD', path)).status, 404);
      await eventually('its leases are gone', () => leases.size === held);
    });
  });
}
