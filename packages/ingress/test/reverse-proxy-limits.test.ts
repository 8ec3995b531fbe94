/** A forwarded request ends as a problem or a cut connection when its upstream or its client fails, and holds nothing afterwards. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import type { ServerResponse } from 'node:http';
import { createServer as createTcpServer } from 'node:net';
import type { AddressInfo } from 'node:net';
import { test } from 'node:test';
import { ReverseProxy, route } from '@ron/ingress';
import type { AccessCheck } from '@ron/proto';
import { listenUpstream, proxyBench, rawUpstream } from './proxy-bench.ts';
import { eventually } from '@ron/testkit';
import { metricIn, RawClient, send } from '@ron/testkit/service';
import { rawAnswer, startIngress } from './support.ts';

const MIB = 1024 * 1024;

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
  const x = await proxyBench(t, (_req, res) => {
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
  await eventually('nothing is forwarded', () => x.proxy.depth === 0);
});

test('an upstream that does not read stops the client, and is cut after the stall limit', async (t) => {
  const x = await proxyBench(t, (req) => void req.pause(), { stall_ms: 1500 });
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
  const x = await proxyBench(t, { host: '127.0.0.1', port }, { head_ms: 100 });
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
  const down = await proxyBench(t, { host: '127.0.0.1', port: free });
  assert.equal((await send(down.url, 'GET', '/api/up/')).status, 502);
});

for (const [name, head] of [
  ['a length', 'Content-Length: 1000\r\n\r\nonly this'],
  ['chunks', 'Transfer-Encoding: chunked\r\n\r\n9\r\nonly this\r\n'],
] as const)
  test(`the client's connection is destroyed if an upstream fails in an answer with ${name}`, async (t) => {
    const server = createTcpServer((socket) => {
      socket.on('error', () => undefined);
      socket.once('data', () =>
        socket.write(`HTTP/1.1 200 OK\r\n${head}`, () => setTimeout(() => socket.destroy(), 50)),
      );
    });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    t.after(() => server.close());
    const x = await proxyBench(t, { host: '127.0.0.1', port: (server.address() as AddressInfo).port });
    const client = await RawClient.open(x.port);
    client.write('GET /api/up/ HTTP/1.1\r\nHost: localhost\r\n\r\n');
    const received = await client.rest();
    assert.match(received, /only this/);
    assert.doesNotMatch(received, /\r\n0\r\n\r\n$/, 'the client can detect the cut');
    await assert.rejects(send(x.url, 'GET', '/api/up/'));
  });

test('heads that cannot be forwarded are 502 at once', async (t) => {
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
  // A request that waited for this limit would get 504.
  const x = await proxyBench(t, await rawUpstream(t, wire), { head_ms: 2000 });
  for (const path in answers) {
    const { status, problem } = await send(x.url, 'GET', `/api/up${path}`);
    assert.deepEqual([status, problem?.code], [502, 'bad_gateway'], path);
  }
  assert.equal(x.proxy.depth, 0);
});

test('a stalled answer is cut after the stall limit', async (t) => {
  const x = await proxyBench(t, (_req, res) => void res.writeHead(200, { 'Content-Length': 10 }).write('a'), {
    stall_ms: 200,
  });
  await assert.rejects(send(x.url, 'GET', '/api/up/'));
  await eventually('nothing is forwarded', () => x.proxy.depth === 0);
});

test('requests over the limit are refused and counted, and close() ends the running ones', async (t) => {
  const x = await proxyBench(t, () => undefined, { requests_max: 4 });
  let refusals = 0;
  const ask = async (n: number, address: string): Promise<RawClient> => {
    const client = await RawClient.open(x.port, address);
    client.write(`GET /api/up/${n} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n`);
    return client;
  };
  const refused = async (client: RawClient): Promise<void> => {
    refusals += 1;
    const { status, problem } = rawAnswer(await client.rest());
    assert.deepEqual([status, problem?.['code']], [429, 'busy']);
    const { text } = await send(x.url, 'GET', '/metrics');
    assert.equal(metricIn(text, 'rejected_total{reason="busy"}'), refusals);
  };
  const running = [await ask(1, '127.0.0.2'), await ask(2, '127.0.0.2')];
  await eventually('both are forwarded', () => x.proxy.depth === 2 && x.connections.length === 2);
  await refused(await ask(3, '127.0.0.2'));
  running.push(await ask(4, '127.0.0.3'), await ask(5, '127.0.0.3'));
  await eventually('another address has its share', () => x.proxy.depth === 4 && x.connections.length === 4);
  await refused(await ask(6, '127.0.0.4'));
  x.proxy.close();
  for (const client of running) assert.equal(rawAnswer(await client.rest()).status, 503);
  assert.equal(x.proxy.depth, 0);
  assert.equal((await send(x.url, 'GET', '/api/up/7')).status, 503);
});

test('a client that stops sending is refused, and so is an encoded body', async (t) => {
  const x = await proxyBench(t, (req) => void req.resume());
  const stalled = await RawClient.open(x.port);
  stalled.write('PUT /api/up/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nabc');
  const { status, problem } = rawAnswer(await stalled.rest());
  assert.deepEqual([status, problem?.['code']], [408, 'request_timeout']);
  const encoded = await send(x.url, 'PUT', '/api/up/a', { body: 'x', headers: { 'content-encoding': 'gzip' } });
  assert.equal(encoded.problem?.code, 'unsupported_media');
  await eventually('the upstream request ended', () => x.proxy.depth === 0);
});

for (const [name, framing, status] of [
  ['has an invalid chunk', 'Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nzz\r\n', 400],
  ['stalls', 'Content-Length: 1000\r\n\r\n0123456789', 408],
] as const)
  test(`an upload that ${name} releases its permit and ends the upstream request`, async (t) => {
    const x = await proxyBench(t, (req) => void req.resume());
    const client = await RawClient.open(x.port);
    client.write(`PUT /api/up/a HTTP/1.1\r\nHost: localhost\r\n${framing}`);
    assert.equal(rawAnswer(await client.rest()).status, status);
    await eventually('nothing is forwarded', () => x.proxy.depth === 0);
    await eventually('its permit is free', () => x.ingress.admission.inflight === 0);
    await eventually('its address is forgotten', () => x.ingress.admission.addresses === 0);
    assert.equal(await x.ingress.drained(AbortSignal.timeout(10_000)), true);
  });

test('a handler that does not state the facts of its capability forwards nothing', async (t) => {
  let forwarded = 0;
  const address = await listenUpstream(t, (_req, res) => void ((forwarded += 1), res.end()), []);
  using proxy = new ReverseProxy({ upstreams: { up: () => address } });
  const phase2 = {
    needsBody: false,
    update: () => undefined,
    end: () => undefined,
    facts: () => undefined,
    settle: () => ({ ok: false, code: 'forbidden', reason: 'the tenant was not stated' }) as const,
  };
  const access: AccessCheck = {
    checkHeaders: () => ({ ok: true, capability_id: 'c', chain: [], subject: 's', scopes: [], caveats: [], phase2 }),
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
