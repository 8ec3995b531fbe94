/** The client over Node's HTTP client, as for bulk transfers. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import type { IncomingMessage } from 'node:http';
import { createServer, type AddressInfo } from 'node:net';
import { test, type TestContext } from 'node:test';
import { blake3 } from '@napi-rs/blake-hash';
import { StorageClient } from '@ron/client';
import { nodeFetch } from '@ron/client/node';
import { isRonError, type ErrorCode } from '@ron/kernel';
import { formatAddress } from '@ron/proto';
import { assertSameBytes, bytesOf } from '@ron/testkit';
import { honestSlice, readBody, sendSlice, serve, type Handler } from './fake-server.ts';

const GROUP = 65_536;
const quick = { tries_max: 2, backoff_ms: () => 1 };

function clientAt(url: string, init: { stall_ms?: number; deadline_ms?: number } = {}): StorageClient {
  return new StorageClient({ url, fetch: nodeFetch(), policy: quick, resume_policy: quick, ...init });
}

async function clientOf(t: TestContext, handler: Handler): Promise<StorageClient> {
  return clientAt(await serve(t, handler));
}

const is =
  (code: ErrorCode, message: RegExp) =>
  (error: unknown): boolean =>
    isRonError(error, code) && message.test(error.message);

test('transient pieces are correct when they are yielded, at every size around the limits of groups', async (t) => {
  let content = new Uint8Array(0);
  const client = await clientOf(t, async (request, response) =>
    sendSlice(response, await honestSlice(content, request.url!)),
  );
  for (const groups of [0, 1, 2, 3, 5, 17]) {
    for (const more of [-65, -64, -1, 0, 1, 63, 64, 65]) {
      const size = groups * GROUP + more;
      if (size < 0) continue;
      content = bytesOf(size, groups + 1);
      const address = formatAddress(blake3(content));
      for (const transient of [true, false]) {
        const copied: Uint8Array[] = [];
        const kept: Uint8Array[] = [];
        for await (const piece of client.get(address, { transient, window_bytes: 4 * GROUP })) {
          copied.push(Uint8Array.from(piece));
          kept.push(piece);
          // The next piece must not overwrite this one while it is in use.
          await new Promise(setImmediate);
        }
        assertSameBytes(Buffer.concat(copied), content, `${size} bytes`);
        if (!transient) assertSameBytes(Buffer.concat(kept), content, `${size} bytes, kept`);
      }
    }
  }
});

test('connections are reused', async (t) => {
  const sockets = new Set<unknown>();
  const content = bytesOf(3 * GROUP);
  const client = await clientOf(t, async (request, response) => {
    sockets.add(request.socket);
    sendSlice(response, await honestSlice(content, request.url!));
  });
  const read = (): Promise<Uint8Array> => client.bytes(formatAddress(blake3(content)), content.length);
  for (let index = 0; index < 5; index++) assertSameBytes(await read(), content);
  assert.equal(sockets.size, 1);
});

test('a server that switches protocols is reported as such', async (t) => {
  const switching = await rawServer(
    t,
    'HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: tea\r\n\r\n',
  );
  const address = formatAddress(new Uint8Array(32));
  await assert.rejects(clientAt(switching).stat(address), is('integrity', /answered 101, which was not requested/));
  const drained = (async () => {
    for await (const _ of clientAt(switching).get(address)) assert.fail('no bytes were expected');
  })();
  await assert.rejects(drained, is('integrity', /answered 101/));
  const bare = await rawServer(t, 'HTTP/1.1 101 Hm\r\n\r\n');
  await assert.rejects(clientAt(bare).stat(address), is('integrity', /answered 101/));
});

test('a redirect is not followed, and the capability is not sent to it', async (t) => {
  const seen: (string | undefined)[] = [];
  const thief = await serve(t, (request) => seen.push(request.headers.authorization));
  const client = await clientOf(t, (_request, response) => response.writeHead(307, { Location: thief }).end());
  await assert.rejects(client.stat(formatAddress(new Uint8Array(32))), is('integrity', /307: redirects/));
  assert.deepEqual(seen, []);
});

test('an interrupted response is resumed where it broke', async (t) => {
  const content = bytesOf(20 * GROUP);
  let calls = 0;
  const client = await clientOf(t, async (request, response) => {
    const slice = await honestSlice(content, request.url!);
    calls += 1;
    if (calls > 1) return sendSlice(response, slice);
    response.writeHead(200, { 'Content-Type': 'application/vnd.ron.bao', 'Content-Length': String(slice.length) });
    return response.write(slice.subarray(0, 5 * GROUP), () => request.socket.destroy());
  });
  assertSameBytes(await client.bytes(formatAddress(blake3(content)), content.length), content);
  assert.equal(calls, 2);
});

test('a slow reader slows the server down', async (t) => {
  const content = bytesOf(64 * 1024 * 1024);
  const slice = await honestSlice(content, `/?offset=0&length=${content.length}`);
  let socket: IncomingMessage['socket'] | undefined;
  const client = await clientOf(t, (request, response) => {
    socket = request.socket;
    sendSlice(response, slice);
  });
  const reading = client.get(formatAddress(blake3(content)), { transient: true });
  await reading.next();
  // Bytes in transit fill the buffers of the system, and no more.
  let before = -1;
  while (before !== socket!.bytesWritten - socket!.writableLength) {
    before = socket!.bytesWritten - socket!.writableLength;
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
  assert.ok(socket!.writableLength > 32 * 1024 * 1024, `${socket!.writableLength} bytes wait at the server`);
  await reading.return();
});

test('an upload that is refused while it is sent ends with the refusal, and is not read to its end', async (t) => {
  let asked_bytes = 0;
  const size = 512 * 1024 * 1024;
  const client = await clientOf(t, (request, response) => {
    if (request.method === 'POST') return response.writeHead(201, { Location: '/uploads/1' }).end();
    return response.writeHead(403, { Connection: 'close' }).end();
  });
  const piece = new Uint8Array(1024 * 1024);
  const read = async function* (start: number): AsyncGenerator<Uint8Array> {
    for (asked_bytes = start; asked_bytes < size; asked_bytes += piece.length) yield piece;
  };
  await assert.rejects(
    client.put({ size, read }),
    (error) => isRonError(error, 'forbidden') || isRonError(error, 'unreachable'),
  );
  assert.ok(asked_bytes < size / 2, `${asked_bytes} bytes were read`);
});

test('an upload is sent while it is read, and a body that shrinks or grows meanwhile is refused', async (t) => {
  const content = bytesOf(3 * 1024 * 1024 * 4 + 7);
  let received = Buffer.alloc(0);
  const client = await clientOf(t, async (request, response) => {
    if (request.method === 'POST') return response.writeHead(201, { Location: '/uploads/1' }).end();
    const body = request.method === 'PATCH' ? await readBody(request).catch(() => Buffer.alloc(0)) : Buffer.alloc(0);
    received = Buffer.concat([received, body]);
    const headers = {
      'Upload-Offset': String(received.length),
      'Upload-Length': String(content.length),
      ...(received.length === content.length && { 'Ron-Address': formatAddress(blake3(received)) }),
    };
    return response.writeHead(request.method === 'HEAD' ? 200 : 204, headers).end();
  });
  const bodyOf = (bytes: Uint8Array): Parameters<StorageClient['put']>[0] => ({
    size: content.length,
    read: async function* (start) {
      yield bytes.subarray(start);
    },
  });
  assert.equal((await client.put(bodyOf(content))).address, formatAddress(blake3(content)));
  for (const other of [content.subarray(1), Buffer.concat([content, content])]) {
    received = Buffer.alloc(0);
    const put = client.put(bodyOf(other));
    await assert.rejects(put, (error) => isRonError(error, 'validation') || isRonError(error, 'integrity'));
  }
});

async function rawServer(t: TestContext, answer: string): Promise<string> {
  const server = createServer((socket) => {
    socket.on('error', () => undefined);
    socket.once('data', () => socket.write(answer));
    t.after(() => socket.destroy());
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => server.close());
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}
