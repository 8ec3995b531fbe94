/** The client of interop against servers that lie, cut a stream or answer late. */
import assert from 'node:assert/strict';
import type { ServerResponse } from 'node:http';
import { test, type TestContext } from 'node:test';
import { addressOf, InteropClient, type HookEvent } from '@ron/client';
import { nodeFetch } from '@ron/client/node';
import { isRonError, type ErrorCode } from '@ron/kernel';
import { assertSameBytes, bytesOf } from '@ron/testkit';
import { honestSlice, readBody, sendSlice, serve, type Handler } from './fake-server.ts';

const quick = { tries_max: 3, backoff_ms: () => 1 };
const content = bytesOf(300_000);
const address = addressOf(content);
const DURABILITY = { fsynced: 1, copies: 1, target: 1 };

async function clientOf(t: TestContext, handler: Handler): Promise<InteropClient> {
  const url = await serve(t, handler);
  return new InteropClient({ url, fetch: nodeFetch(), policy: quick, resume_policy: quick, deadline_ms: 5000 });
}

const answer = (response: ServerResponse, status: number, body: unknown): unknown => {
  const type = status < 400 ? 'application/json' : 'application/problem+json';
  const text = JSON.stringify(body);
  return response.writeHead(status, { 'Content-Type': type, 'Content-Length': Buffer.byteLength(text) }).end(text);
};

const is =
  (code: ErrorCode, message = /./) =>
  (error: unknown): boolean =>
    isRonError(error, code) && message.test(error.message);

/** Sends the pieces, one write for each, and then ends or breaks the stream. */
const streaming =
  (pieces: readonly string[], how: 'end' | 'break' = 'end'): Handler =>
  async (_request, response) => {
    response.writeHead(200, { 'Content-Type': 'text/event-stream' });
    for (const piece of pieces) {
      response.write(piece);
      await new Promise((resolve) => setImmediate(resolve));
    }
    if (how === 'end') response.end();
    else response.destroy();
  };

async function eventsOf(client: InteropClient): Promise<HookEvent[]> {
  const [open, ...events] = await Array.fromAsync(client.events());
  assert.deepEqual(open, { kind: 'open' });
  return events;
}

test('events are read in order, however the stream is cut into pieces; comments and unknown events are skipped', async (t) => {
  const stream =
    ':\n\nevent: delivery\nid: 7\ndata: {"seq":7,"provider":"ä"}\n\nevent: later\ndata: ?\n\n' +
    'event: lag\r\ndata: {"lost":3}\r\n\r\ndata: unnamed\n\nevent: delivery\ndata: {"seq":\ndata: 8}\n\nevent: delivery\ndata: {"seq":9}';
  const expected = [
    { kind: 'delivery', delivery: { seq: 7, provider: 'ä' } },
    { kind: 'lag', lost: 3 },
    { kind: 'delivery', delivery: { seq: 8 } },
  ];
  const bytes = Buffer.from(stream);
  for (const size of [1, 2, 5, 1000]) {
    const pieces = Array.from({ length: Math.ceil(bytes.length / size) }, (_, at) =>
      bytes.subarray(at * size, (at + 1) * size),
    );
    const client = await clientOf(t, streaming(pieces as never));
    assert.deepEqual(await eventsOf(client), expected, `pieces of ${size} bytes`);
  }
});

test('a stream that breaks off is an error, one that ends is not', async (t) => {
  const event = 'event: delivery\ndata: {"seq":1}\n\n';
  assert.equal((await eventsOf(await clientOf(t, streaming([event])))).length, 1);
  await assert.rejects(eventsOf(await clientOf(t, streaming([event], 'break'))), is('unreachable'));
});

test('an endless event, malformed data and an answer that is not a stream are refused', async (t) => {
  const long = Array.from({ length: 80 }, () => `data: ${'x'.repeat(1024)}\n`);
  await assert.rejects(eventsOf(await clientOf(t, streaming(long))), is('integrity', /more than 65536 bytes/));
  const line = Array.from({ length: 80 }, () => 'x'.repeat(1024));
  await assert.rejects(eventsOf(await clientOf(t, streaming(line))), is('integrity', /more than 65536 bytes/));
  for (const data of ['{', '[]', 'null', '{"seq":"1"}', '{"seq":1.5}'])
    await assert.rejects(
      eventsOf(await clientOf(t, streaming([`event: delivery\ndata: ${data}\n\n`]))),
      is('integrity', /malformed/),
      data,
    );
  const json = await clientOf(t, (_request, response) => answer(response, 200, {}));
  await assert.rejects(eventsOf(json), is('integrity', /not an event stream/));
});

test('leaving the loop closes the connection', async (t) => {
  const closed = Promise.withResolvers<void>();
  const client = await clientOf(t, (request, response) => {
    request.socket.once('close', () => closed.resolve());
    response.writeHead(200, { 'Content-Type': 'text/event-stream' }).write('event: lag\ndata: {"lost":1}\n\n');
  });
  for await (const event of client.events()) {
    if (event.kind === 'lag') break;
  }
  await closed.promise;
});

test('rotate and test are sent once, even if their answer is lost', async (t) => {
  const seen: string[] = [];
  const client = await clientOf(t, async (request, response) => {
    seen.push(`${request.method} ${request.url} ${String(await readBody(request))}`);
    response.destroy();
  });
  await assert.rejects(client.rotate('git_1', { secret: 'not a real secret', overlap_ms: 5 }), is('unreachable'));
  await assert.rejects(client.test('git_1'), is('unreachable'));
  assert.deepEqual(seen, [
    'POST /admin/providers/git_1/rotate {"secret":"not a real secret","overlap_ms":5}',
    'POST /admin/providers/git_1/test ',
  ]);
});

test('an unsigned receipt is undefined, and a signed one is returned', async (t) => {
  const client = await clientOf(t, (request, response) =>
    answer(response, request.url!.endsWith('?wait=1') ? 200 : 202, { receipt: { id: 'x' } }),
  );
  assert.equal(await client.receipt('x'), undefined);
  assert.deepEqual(await client.receipt('x', { wait: true }), { receipt: { id: 'x' } });
});

test('a put is believed only if the service states the address of the bytes', async (t) => {
  let stated: string = address;
  const headers: unknown[] = [];
  const client = await clientOf(t, async (request, response) => {
    assertSameBytes(await readBody(request), content);
    headers.push(request.headers['x-content-b3']);
    answer(response, 201, { address: stated, size: content.length, durability: DURABILITY });
  });
  assert.equal((await client.put(content)).address, address);
  const stream = async function* (): AsyncGenerator<Uint8Array> {
    yield content.subarray(0, 7);
    yield content.subarray(7);
  };
  assert.equal((await client.put(stream())).address, address);
  assert.deepEqual(headers, [address, undefined]);
  stated = addressOf(new Uint8Array(1));
  await assert.rejects(client.put(content), is('integrity', /stored other bytes/));
});

test('every byte of a get is proven', async (t) => {
  let flip = false;
  const client = await clientOf(t, async (request, response) => {
    const slice = await honestSlice(content, request.url!);
    if (flip) slice[slice.length - 1]! ^= 1;
    sendSlice(response, slice);
  });
  assertSameBytes(Buffer.concat(await Array.fromAsync(client.get(address))), content);
  flip = true;
  await assert.rejects(Array.fromAsync(client.get(address)), is('integrity'));
});

test('a silent service is left at the signal', async (t) => {
  const client = await clientOf(t, (_request, response) => {
    response.writeHead(200, { 'Content-Type': 'text/event-stream' }).flushHeaders();
  });
  const controller = new AbortController();
  const reading = Array.fromAsync(client.events({ signal: controller.signal }));
  controller.abort(new Error('enough'));
  await assert.rejects(reading, /enough/);
});
