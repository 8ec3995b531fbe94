/** Requests are forwarded to upstreams of a table, streamed both ways, and never end cleanly when the upstream breaks off. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:http';
import type { IncomingMessage, RequestListener, ServerResponse } from 'node:http';
import { connect, createServer as createTcpServer } from 'node:net';
import type { AddressInfo, Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import type { TestContext } from 'node:test';
import { createIngress, ReverseProxy, route } from '@ron/ingress';
import type { AccessCheck, Ingress, ReverseProxyInit, Upstream } from '@ron/ingress';
import { Metrics } from '@ron/kernel';
import { eventually } from '@ron/testkit';
import { metricIn, RawClient, send } from '@ron/testkit/service';
import { rawAnswer, startIngress } from './support.ts';

const MIB = 1024 * 1024;

interface Bench {
  readonly url: string;
  readonly port: number;
  readonly proxy: ReverseProxy;
  readonly ingress: Ingress;
  /** Connections that the upstream accepted. */
  readonly connections: Socket[];
}

/** A listener whose `/api/up/*` goes to `upstream`. */
async function bench(
  t: TestContext,
  upstream: RequestListener | Upstream | undefined,
  init: Partial<ReverseProxyInit> = {},
): Promise<Bench> {
  const connections: Socket[] = [];
  const address = typeof upstream === 'function' ? await listen(t, upstream, connections) : upstream;
  const proxy = new ReverseProxy({ upstreams: { up: () => address }, ...init });
  const base = { scope: null, lane: 'inline', body: 'forward', summary: 'For a test.', path: '/api/:name/*' } as const;
  const rows = (['GET', 'PUT', 'DELETE'] as const).map((method) =>
    route({
      ...base,
      method,
      handler: ({ params }) => {
        const { name } = params as { name: string };
        return proxy.answer(name, { strip: `/api/${name}`, headers: { Authorization: 'Bearer of-the-service' } });
      },
    }),
  );
  const ingress = await createIngress({
    service: 'x',
    version: '0',
    metrics: new Metrics('x'),
    config: { sweep_ms: 20, read_timeout_ms: 150 },
    routes: rows,
  });
  const url = await ingress.listen();
  t.after(async () => {
    proxy.close();
    await ingress[Symbol.asyncDispose]();
  });
  return { url, port: Number(new URL(url).port), proxy, ingress, connections };
}

async function listen(t: TestContext, listener: RequestListener, connections: Socket[]): Promise<Upstream> {
  const server = createServer(listener);
  server.on('connection', (socket: Socket) => connections.push(socket));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => {
    for (const socket of connections) socket.destroy();
    server.close();
  });
  return { host: '127.0.0.1', port: (server.address() as AddressInfo).port };
}

test('method, target, headers and body arrive; the headers of a hop, the session and forged ones do not', async (t) => {
  let seen: IncomingMessage | undefined;
  const x = await bench(t, (req, res) => {
    seen = req;
    let body = '';
    req.on('data', (chunk: Buffer) => (body += chunk.toString()));
    req.on('end', () => {
      res.setHeader('Connection', 'close, X-Private');
      res.setHeader('X-Private', 'secret');
      res.setHeader('Keep-Alive', 'timeout=99');
      res.setHeader('Set-Cookie', ['a=1', 'b=2']);
      res.setHeader('X-Content-Type-Options', 'other');
      res.setHeader('X-Corr-ID', 'of-the-upstream');
      res.writeHead(207, { 'Content-Type': 'text/x' });
      res.end(`got ${body}`);
    });
  });
  const reply = await send(x.url, 'PUT', '/api/up/o/a%20b?q=1&r=%2F', {
    body: 'some text',
    headers: {
      'content-type': 'text/y',
      authorization: 'session-id',
      cookie: 'c=1',
      'x-corr-id': 'corr-1',
      'x-forwarded-for': '10.0.0.1',
      forwarded: 'for=10.0.0.1',
      te: 'trailers',
      connection: 'keep-alive, x-hop',
      'x-hop': 'secret',
      'x-kept': 'yes',
    },
  });
  assert.equal(reply.status, 207);
  assert.equal(reply.text, 'got some text');
  assert.equal(reply.headers['content-type'], 'text/x');
  assert.deepEqual(reply.headers['set-cookie'], ['a=1', 'b=2']);
  assert.equal(reply.headers['x-private'], undefined);
  assert.notEqual(reply.headers['keep-alive'], 'timeout=99');
  assert.equal(reply.headers['x-content-type-options'], 'nosniff');
  assert.equal(reply.headers['x-corr-id'], 'corr-1');
  assert.equal(seen!.method, 'PUT');
  assert.equal(seen!.url, '/o/a%20b?q=1&r=%2F');
  const { headers } = seen!;
  assert.equal(headers.host, 'localhost');
  assert.equal(headers.authorization, 'Bearer of-the-service');
  assert.equal(headers['x-corr-id'], 'corr-1');
  assert.equal(headers['content-type'], 'text/y');
  assert.equal(headers['x-kept'], 'yes');
  for (const name of ['cookie', 'x-hop', 'te', 'x-forwarded-for', 'forwarded'])
    assert.equal(headers[name], undefined, name);
});

test('only names of the table lead anywhere', async (t) => {
  const x = await bench(t, undefined);
  for (const name of ['other', 'constructor', '__proto__', '127.0.0.1:80'])
    assert.equal((await send(x.url, 'GET', `/api/${name}/x`)).status, 404, name);
  const down = await send(x.url, 'GET', '/api/up/x');
  assert.equal(down.status, 502);
  assert.equal(down.problem?.code, 'bad_gateway');
  const metrics = (await send(x.url, 'GET', '/metrics')).body.toString();
  assert.equal(metricIn(metrics, 'rejected_total{reason="bad_gateway"}'), 1);
});

test('HEAD, 204 and 304 have no body, and connections to the upstream are used again', async (t) => {
  const x = await bench(t, (req, res) => {
    if (req.method === 'HEAD') res.setHeader('Content-Length', '1234');
    else res.statusCode = Number(req.url!.slice(1));
    res.end();
  });
  const head = await send(x.url, 'HEAD', '/api/up/');
  assert.equal(head.headers['content-length'], '1234');
  for (const status of [204, 304, 204, 304])
    assert.equal((await send(x.url, 'GET', `/api/up/${status}`)).status, status);
  await send(x.url, 'DELETE', '/api/up/204');
  assert.equal(x.connections.length, 1);
  assert.equal(x.proxy.active, 0);
});

test('a connection that the upstream closed meanwhile costs a GET nothing', async (t) => {
  let requests = 0;
  const x = await bench(t, (_req, res) => {
    requests += 1;
    // The second request comes on a connection that was kept open, and finds it cut.
    if (requests === 2) res.socket!.destroy();
    else res.end('fine');
  });
  assert.equal((await send(x.url, 'GET', '/api/up/')).text, 'fine');
  assert.equal((await send(x.url, 'GET', '/api/up/')).text, 'fine');
  assert.equal(requests, 3);
});

test('a Unix socket is an upstream, too', async (t) => {
  const dir = mkdtempSync(join(tmpdir(), 'ron-proxy-'));
  const socketPath = join(dir, 's');
  const server = createServer((_req, res) => res.end('by path'));
  server.listen(socketPath);
  await once(server, 'listening');
  const x = await bench(t, { socketPath });
  t.after(() => {
    server.closeAllConnections();
    server.close();
    rmSync(dir, { recursive: true, force: true });
  });
  assert.equal((await send(x.url, 'GET', '/api/up/')).text, 'by path');
});

test('large bodies pass both ways, whole', async (t) => {
  const x = await bench(t, (req, res) => {
    res.writeHead(200, { 'Content-Type': 'application/octet-stream' });
    req.pipe(res);
  });
  const body = Buffer.alloc(8 * MIB, 'abc');
  const reply = await send(x.url, 'PUT', '/api/up/', { body });
  assert.ok(reply.body.equals(body));
});

/** Waits until a count stays the same for a while. */
async function standsStill(count: () => number): Promise<number> {
  for (let last = -1, same = 0; ;) {
    same = count() === last && last > 0 ? same + 1 : 0;
    last = count();
    if (same >= 10) return last;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

test('a client that does not read stops the upstream, and one that leaves ends it', async (t) => {
  let answer: ServerResponse | undefined;
  const chunk = Buffer.alloc(64 * 1024);
  const x = await bench(t, (_req, res) => {
    answer = res;
    res.writeHead(200);
    const pump = (error?: Error | null): void => void (error || res.write(chunk, pump));
    pump();
  });
  const client = await RawClient.open(x.port);
  client.socket.pause();
  client.write('GET /api/up/ HTTP/1.1\r\nHost: localhost\r\n\r\n');
  await eventually('the answer begins', () => answer !== undefined);
  const written = await standsStill(() => answer!.socket!.bytesWritten);
  assert.ok(written < 64 * MIB, `${written}`);
  client.destroy();
  await eventually('the upstream is left', () => answer!.destroyed);
  await eventually('nothing is forwarded', () => x.proxy.active === 0);
});

test('an upstream that does not read stops the client, and is given up after the stall limit', async (t) => {
  const x = await bench(t, (req) => void req.pause(), { stall_ms: 1500 });
  const client = await RawClient.open(x.port);
  const total = 256 * MIB;
  client.write(`PUT /api/up/ HTTP/1.1\r\nHost: localhost\r\nContent-Length: ${total}\r\n\r\n`);
  const piece = Buffer.alloc(MIB);
  const pump = (): void => {
    if (!client.socket.destroyed && client.socket.writable) client.socket.write(piece, () => pump());
  };
  pump();
  assert.match((await client.until(/^HTTP\/1\.1 \d+/))[0], /504/);
  assert.ok(client.socket.bytesWritten < total / 2, `${client.socket.bytesWritten}`);
  client.destroy();
});

for (const [name, head] of [
  ['a length', 'Content-Length: 1000\r\n\r\nonly this'],
  ['chunks', 'Transfer-Encoding: chunked\r\n\r\n9\r\nonly this\r\n'],
] as const)
  test(`an upstream that breaks off an answer with ${name} has the client's connection destroyed`, async (t) => {
    const server = createTcpServer((socket) => {
      socket.on('error', () => undefined);
      socket.once('data', () =>
        socket.write(`HTTP/1.1 200 OK\r\n${head}`, () => setTimeout(() => socket.destroy(), 50)),
      );
    });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    t.after(() => server.close());
    const x = await bench(t, { host: '127.0.0.1', port: (server.address() as AddressInfo).port });
    const client = await RawClient.open(x.port);
    client.write('GET /api/up/ HTTP/1.1\r\nHost: localhost\r\n\r\n');
    const received = await client.rest();
    assert.match(received, /only this/);
    assert.doesNotMatch(received, /\r\n0\r\n\r\n$/, 'the client can detect the cut');
    await assert.rejects(send(x.url, 'GET', '/api/up/'));
  });

test('upstreams that are down, silent, invalid or endless are problems', async (t) => {
  const silent = createTcpServer((socket) => {
    socket.on('error', () => undefined);
    socket.on('data', (data) => {
      const path = data.toString().split(' ')[1];
      if (path === '/garbage') socket.end('this is not HTTP\r\n\r\n');
      if (path === '/endless') socket.end('HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nuntil the end');
      if (path === '/both') socket.end('HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\nx');
      if (path === '/close') socket.end();
    });
  });
  silent.listen(0, '127.0.0.1');
  await once(silent, 'listening');
  const { port } = silent.address() as AddressInfo;
  const x = await bench(t, { host: '127.0.0.1', port }, { head_ms: 100 });
  for (const path of ['garbage', 'endless', 'both', 'close'])
    assert.equal((await send(x.url, 'GET', `/api/up/${path}`)).status, 502, path);
  const late = await send(x.url, 'GET', '/api/up/silent');
  assert.equal(late.status, 504);
  assert.equal(late.problem?.code, 'timeout');
  silent.close();
  const unused = createTcpServer().listen(0, '127.0.0.1');
  await once(unused, 'listening');
  const free = (unused.address() as AddressInfo).port;
  unused.close();
  await once(unused, 'close');
  const down = await bench(t, { host: '127.0.0.1', port: free });
  assert.equal((await send(down.url, 'GET', '/api/up/')).status, 502);
});

/** An upstream that answers each request with the bytes for its path. */
async function rawUpstream(t: TestContext, answers: Readonly<Record<string, string>>): Promise<Upstream> {
  const server = createTcpServer((socket) => {
    t.after(() => socket.destroy());
    socket.on('error', () => undefined);
    socket.on('data', (data) => socket.write(answers[data.toString().split(' ')[1]!]!));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => server.close());
  return { host: '127.0.0.1', port: (server.address() as AddressInfo).port };
}

test('heads that cannot be passed on are 502 at once', async (t) => {
  const answers = {
    '/upgrade': '101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n',
    '/bare-upgrade': '101 Switching Protocols\r\n\r\n',
    '/low': '099 Odd\r\nContent-Length: 0\r\n\r\n',
    '/high': '600 Odd\r\nContent-Length: 0\r\n\r\n',
    '/coded': '200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n',
    '/coded-lines': '200 OK\r\nTransfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n',
    '/control': '200 OK\r\nX-A: a\x01b\r\nContent-Length: 0\r\n\r\n',
  };
  const wire = Object.fromEntries(Object.entries(answers).map(([path, text]) => [path, `HTTP/1.1 ${text}`]));
  // One that waited for this limit would be 504.
  const x = await bench(t, await rawUpstream(t, wire), { head_ms: 2000 });
  for (const path in answers) {
    const { status, problem } = await send(x.url, 'GET', `/api/up${path}`);
    assert.deepEqual([status, problem?.code], [502, 'bad_gateway'], path);
  }
  assert.equal(x.proxy.active, 0);
});

test('a 204 is passed on without a length, and a 304 with that of its object', async (t) => {
  const x = await bench(
    t,
    await rawUpstream(t, {
      '/204': 'HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n',
      '/304': 'HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n',
    }),
  );
  assert.equal((await send(x.url, 'GET', '/api/up/204')).headers['content-length'], undefined);
  assert.equal((await send(x.url, 'GET', '/api/up/304')).headers['content-length'], '5');
});

test('another spelling of the prefix leads nowhere', async (t) => {
  const x = await bench(t, (_req, res) => void res.end('reached'));
  for (const path of ['/api/%75p/x', '/%61pi/up/x']) {
    const { status, problem } = await send(x.url, 'GET', path);
    assert.deepEqual([status, problem?.code], [404, 'not_found'], path);
  }
});

test('an answer that stands still is cut after the stall limit', async (t) => {
  const x = await bench(t, (_req, res) => void res.writeHead(200, { 'Content-Length': 10 }).write('a'), {
    stall_ms: 200,
  });
  await assert.rejects(send(x.url, 'GET', '/api/up/'));
  await eventually('nothing is forwarded', () => x.proxy.active === 0);
});

test('an answer before the whole body was sent reaches the client', async (t) => {
  const x = await bench(t, (_req, res) => void res.writeHead(413, { 'Content-Length': 9 }).end('too large'));
  const client = connect(x.port, '127.0.0.1');
  t.after(() => client.destroy());
  client.on('error', () => undefined);
  let received = '';
  client.on('data', (chunk: Buffer) => (received += chunk.toString()));
  client.write(`PUT /api/up/ HTTP/1.1\r\nHost: localhost\r\nContent-Length: ${64 * MIB}\r\n\r\n`);
  client.write(Buffer.alloc(256 * 1024));
  await eventually('the answer', () => received.endsWith('too large'));
  assert.match(received, /^HTTP\/1\.1 413 /);
  assert.match(received, /^connection: close\r$/im);
});

test('more requests at once than allowed are refused, and close() ends those that run', async (t) => {
  const x = await bench(t, () => undefined, { requests_max: 4 });
  const ask = async (n: number, address: string): Promise<RawClient> => {
    const client = await RawClient.open(x.port, address);
    client.write(`GET /api/up/${n} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n`);
    return client;
  };
  const refused = async (client: RawClient): Promise<void> => {
    const { status, problem } = rawAnswer(await client.rest());
    assert.deepEqual([status, problem?.['code']], [429, 'busy']);
  };
  const running = [await ask(1, '127.0.0.2'), await ask(2, '127.0.0.2')];
  await eventually('both are forwarded', () => x.proxy.active === 2 && x.connections.length === 2);
  await refused(await ask(3, '127.0.0.2'));
  running.push(await ask(4, '127.0.0.3'), await ask(5, '127.0.0.3'));
  await eventually('another address has its share', () => x.proxy.active === 4 && x.connections.length === 4);
  await refused(await ask(6, '127.0.0.4'));
  x.proxy.close();
  for (const client of running) assert.equal(rawAnswer(await client.rest()).status, 503);
  assert.equal(x.proxy.active, 0);
  assert.equal((await send(x.url, 'GET', '/api/up/7')).status, 503);
});

test('events pass as they come', async (t) => {
  let answer: ServerResponse | undefined;
  const x = await bench(t, (_req, res) => {
    answer = res;
    res.writeHead(200, { 'Content-Type': 'text/event-stream' });
    res.write('data: one\n\n');
  });
  const client = await RawClient.open(x.port);
  client.write('GET /api/up/ HTTP/1.1\r\nHost: localhost\r\n\r\n');
  await client.until(/data: one/);
  answer!.write('data: two\n\n');
  await client.until(/data: two/);
  answer!.end();
  await client.until(/\r\n0\r\n\r\n$/);
  client.destroy();
});

test('a client that stops sending is refused, and so is an encoded body', async (t) => {
  const x = await bench(t, (req) => void req.resume());
  const stalled = await RawClient.open(x.port);
  stalled.write('PUT /api/up/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nabc');
  const { status, problem } = rawAnswer(await stalled.rest());
  assert.deepEqual([status, problem?.['code']], [408, 'request_timeout']);
  const encoded = await send(x.url, 'PUT', '/api/up/a', { body: 'x', headers: { 'content-encoding': 'gzip' } });
  assert.equal(encoded.problem?.code, 'unsupported_media');
  await eventually('the upstream request ended', () => x.proxy.active === 0);
});

for (const [name, framing, status] of [
  ['has an invalid chunk', 'Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nzz\r\n', 400],
  ['stands still', 'Content-Length: 1000\r\n\r\n0123456789', 408],
] as const)
  test(`an upload that ${name} gives back its place and ends the upstream request`, async (t) => {
    const x = await bench(t, (req) => void req.resume());
    const client = await RawClient.open(x.port);
    client.write(`PUT /api/up/a HTTP/1.1\r\nHost: localhost\r\n${framing}`);
    assert.equal(rawAnswer(await client.rest()).status, status);
    await eventually('nothing is forwarded', () => x.proxy.active === 0);
    await eventually('its place is free', () => x.ingress.admission.inflight === 0);
    await eventually('its address is forgotten', () => x.ingress.admission.addresses === 0);
    assert.equal(await x.ingress.drained(AbortSignal.timeout(10_000)), true);
  });

test('a handler that does not state the facts of its capability forwards nothing', async (t) => {
  let forwarded = 0;
  const address = await listen(t, (_req, res) => void ((forwarded += 1), res.end()), []);
  using proxy = new ReverseProxy({ upstreams: { up: () => address } });
  const phase2 = {
    needsBody: false,
    update: () => undefined,
    end: () => undefined,
    facts: () => undefined,
    settle: () => ({ ok: false, code: 'forbidden', reason: 'the tenant was not stated' }) as const,
  };
  const access: AccessCheck = {
    checkHeaders: () => ({ ok: true, capability_id: 'c', subject: 's', scopes: [], caveats: [], phase2 }),
  };
  const base = { scope: 'x:put', lane: 'inline', body: 'forward', summary: 'For a test.' } as const;
  const row = route({
    ...base,
    method: 'PUT',
    path: '/a',
    facts_later: ['tenant'],
    handler: () => proxy.answer('up'),
  });
  await using x = await startIngress({ routes: [row], access });
  assert.equal((await send(x.url, 'PUT', '/a', { body: 'x' })).problem?.code, 'forbidden');
  assert.equal(forwarded, 0);
});
