/** Requests are forwarded to upstreams of a table and streamed in both directions. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:http';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { proxyBench, rawUpstream } from './proxy-bench.ts';
import { eventually } from '@ron/testkit';
import { metricIn, RawClient, send } from '@ron/testkit/service';

const MIB = 1024 * 1024;

test('method, target, headers and body are forwarded; hop-by-hop, session and forged headers are not', async (t) => {
  let seen: IncomingMessage | undefined;
  const x = await proxyBench(t, (req, res) => {
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

test('only names of the table are forwarded', async (t) => {
  const x = await proxyBench(t, undefined);
  for (const name of ['other', 'constructor', '__proto__', '127.0.0.1:80'])
    assert.equal((await send(x.url, 'GET', `/api/${name}/x`)).status, 404, name);
  const down = await send(x.url, 'GET', '/api/up/x');
  assert.equal(down.status, 502);
  assert.equal(down.problem?.code, 'bad_gateway');
  const metrics = (await send(x.url, 'GET', '/metrics')).body.toString();
  assert.equal(metricIn(metrics, 'rejected_total{reason="bad_gateway"}'), 1);
});

test('HEAD, 204 and 304 have no body, and connections to the upstream are reused', async (t) => {
  const x = await proxyBench(t, (req, res) => {
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
  assert.equal(x.proxy.depth, 0);
});

test('a GET is retried if the upstream closed the kept-alive connection', async (t) => {
  let requests = 0;
  const x = await proxyBench(t, (_req, res) => {
    requests += 1;
    // The second request uses a kept-alive connection, which is then cut.
    if (requests === 2) res.socket!.destroy();
    else res.end('fine');
  });
  assert.equal((await send(x.url, 'GET', '/api/up/')).text, 'fine');
  assert.equal((await send(x.url, 'GET', '/api/up/')).text, 'fine');
  assert.equal(requests, 3);
});

test('a Unix socket can be an upstream', async (t) => {
  const dir = mkdtempSync(join(tmpdir(), 'ron-proxy-'));
  const socketPath = join(dir, 's');
  const server = createServer((_req, res) => res.end('by path'));
  server.listen(socketPath);
  await once(server, 'listening');
  const x = await proxyBench(t, { socketPath });
  t.after(() => {
    server.closeAllConnections();
    server.close();
    rmSync(dir, { recursive: true, force: true });
  });
  assert.equal((await send(x.url, 'GET', '/api/up/')).text, 'by path');
});

test('large bodies are forwarded completely in both directions', async (t) => {
  const x = await proxyBench(t, (req, res) => {
    res.writeHead(200, { 'Content-Type': 'application/octet-stream' });
    req.pipe(res);
  });
  const body = Buffer.alloc(8 * MIB, 'abc');
  const reply = await send(x.url, 'PUT', '/api/up/', { body });
  assert.ok(reply.body.equals(body));
});

test('a 204 is forwarded without a length, and a 304 with the length of its object', async (t) => {
  const x = await proxyBench(
    t,
    await rawUpstream(t, {
      '/204': 'HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n',
      '/304': 'HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n',
    }),
  );
  assert.equal((await send(x.url, 'GET', '/api/up/204')).headers['content-length'], undefined);
  assert.equal((await send(x.url, 'GET', '/api/up/304')).headers['content-length'], '5');
});

test('another spelling of the prefix is not forwarded', async (t) => {
  const x = await proxyBench(t, (_req, res) => void res.end('reached'));
  for (const path of ['/api/%75p/x', '/%61pi/up/x']) {
    const { status, problem } = await send(x.url, 'GET', path);
    assert.deepEqual([status, problem?.code], [404, 'not_found'], path);
  }
});

test('an answer before the end of the request body reaches the client', async (t) => {
  const x = await proxyBench(t, (_req, res) => void res.writeHead(413, { 'Content-Length': 9 }).end('too large'));
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

test('events are forwarded as they arrive', async (t) => {
  let answer: ServerResponse | undefined;
  const x = await proxyBench(t, (_req, res) => {
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
