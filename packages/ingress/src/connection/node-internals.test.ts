/** The contract with Node: a test fails when a version of Node changes an undocumented part. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import { connect } from 'node:net';
import type { AddressInfo, Socket } from 'node:net';
import { test } from 'node:test';
import { TLSSocket } from 'node:tls';
import {
  answerStarted,
  keepDrainEvents,
  onSocketAssigned,
  readIntoOneBuffer,
  sentBytes,
  socketBelow,
  stopAfterThisRequest,
  stopListening,
  takeParserInput,
  takeParserListener,
  waitsForSocket,
} from './node-internals.ts';

const GET = 'GET / HTTP/1.1\r\nHost: a\r\n\r\n';

interface Pair extends AsyncDisposable {
  readonly server: Server;
  readonly client: Socket;
}

/** A server whose parser listener is removed and called by the test, and one client. */
async function pair(handle: (req: IncomingMessage, res: ServerResponse) => void): Promise<Pair> {
  const server = createServer({ noDelay: true }, handle);
  server.on('connection', takeParserListener(server));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const client = connect({ port: (server.address() as AddressInfo).port, host: '127.0.0.1' });
  client.on('error', () => undefined);
  await once(client, 'connect');
  return {
    server,
    client,
    async [Symbol.asyncDispose]() {
      client.destroy();
      server.closeAllConnections();
      if (server.listening) server.close();
    },
  };
}

async function requestOn({ server, client }: Pair): Promise<[IncomingMessage, ServerResponse]> {
  const requested = once(server, 'request');
  client.write(GET);
  return (await requested) as [IncomingMessage, ServerResponse];
}

test('the only connection listener of a server attaches the parser', async () => {
  await using served = await pair((_req, res) => res.end('read'));
  served.client.write(GET);
  const [text] = (await once(served.client, 'data')) as [Buffer];
  assert.match(String(text), /read$/);
  const bare = createServer();
  takeParserListener(bare);
  assert.deepEqual(bare.listeners('connection'), []);
  assert.throws(() => takeParserListener(bare), /exactly one connection listener/);
});

test('a server that stops listening keeps its idle connections', async () => {
  await using served = await pair((_req, res) => res.end('kept'));
  const [, first] = await requestOn(served);
  if (!first.writableFinished) await once(first, 'finish');
  await once(served.client, 'data');
  const closed = once(served.server, 'close');
  stopListening(served.server);
  assert.equal(served.server.listening, false);
  stopListening(served.server);
  served.client.write(GET);
  const [text] = (await once(served.client, 'data')) as [Buffer];
  assert.match(String(text), /kept$/);
  served.client.destroy();
  await closed;
});

test('_httpMessage is the response that owns the socket until its answer is sent', async () => {
  await using served = await pair(() => undefined);
  const [{ socket }, res] = await requestOn(served);
  assert.equal(answerStarted(socket), false);
  const { _httpMessage: owner } = socket as unknown as { _httpMessage: unknown };
  assert.equal(owner, res);
  res.write('half');
  assert.equal(answerStarted(socket), true);
  const finished = once(res, 'close');
  res.end();
  await finished;
  assert.equal(answerStarted(socket), false);
});

test('a response is assigned the socket, and emits an event, when the answer before it is sent', async () => {
  const seen: ServerResponse[] = [];
  const begun: number[] = [];
  await using served = await pair((_req, res) => {
    const n = seen.push(res) - 1;
    if (waitsForSocket(res)) onSocketAssigned(res, () => void begun.push(n));
  });
  served.client.write(GET.repeat(3));
  while (seen.length < 3) await new Promise((resolve) => setImmediate(resolve));
  assert.deepEqual(
    seen.map((res) => waitsForSocket(res)),
    [false, true, true],
  );
  for (let n = 0; n < 2; n += 1) {
    assert.equal(begun.length, n, 'one at a time');
    const closed = once(seen[n]!, 'close');
    seen[n]!.end('answer');
    await closed;
    assert.equal(begun.length, n + 1);
    assert.equal(waitsForSocket(seen[n + 1]!), false);
  }
});

test('parser.onIncoming decides whether the rest of a packet is parsed', async () => {
  for (const stops of [true, false]) {
    let requests = 0;
    await using served = await pair(({ socket }, res) => {
      requests += 1;
      if (stops) stopAfterThisRequest(socket);
      res.end(`answer ${requests}`);
    });
    let received = '';
    served.client.on('data', (chunk: Buffer) => (received += String(chunk)));
    served.client.write(GET.repeat(20));
    const last = stops ? 'answer 1' : 'answer 20';
    while (!received.endsWith(last)) await once(served.client, 'data');
    // The rest of a packet is parsed in the same tick as the first request.
    assert.equal(requests, stops ? 1 : 20);
  }
});

test('a socket with a parser has one data listener, which feeds the parser and accepts packets in pieces', async () => {
  let requests = 0;
  let parse: ((packet: Buffer) => void) | undefined;
  const packets: Buffer[] = [];
  await using served = await pair(({ socket }, res) => {
    requests += 1;
    if (parse === undefined) {
      assert.equal(socket.listenerCount('data'), 1);
      parse = takeParserInput(socket, (packet) => void packets.push(packet));
    }
    res.end(`answer ${requests}`);
  });
  await requestOn(served);
  // Detached from the native parser in the middle of its work: the next packet reaches the test and is not parsed.
  served.client.write(GET.repeat(2));
  while (packets.length === 0) await new Promise((resolve) => setImmediate(resolve));
  assert.equal(requests, 1);
  let received = '';
  served.client.on('data', (chunk: Buffer) => (received += String(chunk)));
  const bytes = Buffer.concat(packets);
  for (const [from, to, count] of [
    [0, 10, 1],
    [10, GET.length, 2],
    [GET.length, 2 * GET.length, 3],
  ] as const) {
    parse!(bytes.subarray(from, to));
    assert.equal(requests, count);
  }
  while (!received.endsWith('answer 3')) await once(served.client, 'data');
});

test('a parser input that is taken while Node has stopped reading is read again once the answers are out', async () => {
  const responses: ServerResponse[] = [];
  let isStopped: boolean | undefined;
  await using served = await pair((req, res) => {
    responses.push(res);
    // More than the socket takes: Node stops reading when the next request arrives.
    if (responses.length === 1) res.write(Buffer.alloc(16 * 1024 * 1024));
    if (responses.length === 2) {
      isStopped = req.socket.isPaused();
      const parse = takeParserInput(req.socket, (packet) => parse(packet));
    }
    if (responses.length === 3) res.end('answer 3');
  });
  served.client.pause();
  served.client.write(GET);
  while (responses.length < 1) await new Promise((resolve) => setImmediate(resolve));
  served.client.write(GET);
  while (responses.length < 2) await new Promise((resolve) => setImmediate(resolve));
  assert.equal(isStopped, true);
  let end = '';
  served.client.on('data', (chunk: Buffer) => (end = (end + String(chunk)).slice(-100)));
  for (const [at, res] of responses.entries()) res.end(`answer ${at + 1}`);
  served.client.resume();
  while (!end.includes('answer 2')) await once(served.client, 'data');
  served.client.write(GET);
  while (!end.includes('answer 3')) await once(served.client, 'data', { signal: AbortSignal.timeout(10_000) });
});

test('sockets that read into one buffer keep their packets, even if a parser was attached in between', async () => {
  const server = createServer({ noDelay: true }, (_req, res) => res.end('read'));
  const attachParser = takeParserListener(server);
  server.on('connection', readIntoOneBuffer);
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const open = async (): Promise<[client: Socket, accepted: Socket]> => {
    const client = connect(port, '127.0.0.1');
    const [accepted] = (await once(server, 'connection')) as [Socket];
    return [client, accepted];
  };
  const [client, accepted] = await open();
  const [other_client, other] = await open();
  try {
    const buffer = Object.getOwnPropertySymbols(accepted).find(({ description }) => description === 'kBuffer');
    assert.ok((accepted as unknown as Record<symbol, unknown>)[buffer!] instanceof Buffer);
    client.write('first');
    const [packet] = (await once(accepted, 'data')) as [Buffer];
    other_client.write('later');
    await once(other, 'data');
    assert.equal(String(packet), 'first');
    attachParser(accepted);
    const parse = takeParserInput(accepted, (bytes) => parse(bytes));
    client.write(GET);
    const [text] = (await once(client, 'data')) as [Buffer];
    assert.match(String(text), /read$/);
  } finally {
    for (const socket of [client, accepted, other_client, other]) socket.destroy();
    server.close();
  }
});

test('the counters of the handle advance during one large write', async () => {
  await using served = await pair(() => undefined);
  const [{ socket }, res] = await requestOn(served);
  const { _handle: handle } = socket as unknown as { _handle: { bytesWritten: unknown; writeQueueSize: unknown } };
  assert.equal(typeof handle.bytesWritten, 'number');
  assert.equal(typeof handle.writeQueueSize, 'number');
  served.client.pause();
  const body = Buffer.alloc(64 * 1024 * 1024);
  res.writeHead(200, { 'content-length': body.length });
  const written = once(res, 'finish');
  res.end(body);
  await new Promise((resolve) => void setImmediate(resolve));
  const first_bytes = sentBytes(socket);
  assert.ok(first_bytes < body.length, `the kernel cannot have accepted all of it: ${first_bytes}`);
  assert.ok(socket.writableLength >= body.length, 'the public counter counts the whole write as unsent');
  let seen_bytes = 0;
  served.client.on('data', (chunk: Buffer) => (seen_bytes += chunk.length));
  served.client.resume();
  while (seen_bytes < body.length / 2) await once(served.client, 'data');
  const middle_bytes = sentBytes(socket);
  assert.ok(middle_bytes > first_bytes && middle_bytes <= socket.bytesWritten, `${first_bytes} .. ${middle_bytes}`);
  await written;
  assert.equal(sentBytes(socket), socket.bytesWritten);
});

test('after CONNECT a response is still notified that its socket has drained', async () => {
  await using served = await pair(() => undefined);
  served.client.pause();
  const [, res] = await requestOn(served);
  // More than the kernel accepts.
  assert.equal(res.write(Buffer.alloc(64 * 1024 * 1024)), false);
  const tunnelled = once(served.server, 'connect');
  served.client.write('CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n');
  const [, socket] = (await tunnelled) as [IncomingMessage, Socket];
  assert.equal(socket.listenerCount('drain'), 0, 'otherwise this function can be removed');
  socket.on('error', () => undefined);
  keepDrainEvents(socket);
  const drained = once(res, 'drain');
  served.client.resume();
  await drained;
});

test('a TLS socket exposes its underlying socket', async () => {
  await using served = await pair(() => undefined);
  const [{ socket }] = await requestOn(served);
  assert.equal(socketBelow(socket), undefined);
  const secure = new TLSSocket(socket, { isServer: true });
  secure.on('error', () => undefined);
  assert.equal(socketBelow(secure), socket);
  secure.destroy();
});

test('no function throws on a closed socket', async () => {
  await using served = await pair(() => undefined);
  const [{ socket }] = await requestOn(served);
  const closed = once(socket, 'close');
  socket.destroy();
  await closed;
  assert.equal(answerStarted(socket), false);
  stopAfterThisRequest(socket);
  assert.ok(sentBytes(socket) >= 0);
});
