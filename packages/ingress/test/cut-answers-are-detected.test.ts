/** A cut answer of unknown length: a client of HTTP/1.0, which gets no chunks, reads an error instead of an end. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { test } from 'node:test';
import { connect } from 'node:tls';
import { events, ReverseProxy, route, stream } from '@ron/ingress';
import type { Route } from '@ron/ingress';
import { eventually, tempDirFor } from '@ron/testkit';
import { RawClient } from '@ron/testkit/service';
import { startIngress } from './support.ts';

const base = { method: 'GET', scope: null, lane: 'inline', body: 'none', summary: 'For a test.' } as const;
const get = (path: string): string => `GET ${path} HTTP/1.0\r\nHost: localhost\r\n\r\n`;

/** The error that the client read instead of an end. */
async function errorOf(client: RawClient): Promise<string | undefined> {
  await eventually('the connection is closed', () => client.closed);
  const error: NodeJS.ErrnoException | undefined = client.error;
  return error?.code;
}

/** Fails or ends under the control of the test. */
function source(): { route: Route; fail: () => void; end: () => void } {
  const gate = Promise.withResolvers<void>();
  async function* items(): AsyncGenerator<string> {
    yield 'first\n';
    await gate.promise;
  }
  return {
    route: route({ ...base, path: '/stream', handler: () => stream(200, 'text/plain', items()) }),
    fail: () => gate.reject(new Error('the disk is gone')),
    end: () => gate.resolve(),
  };
}

test('a complete stream is closed cleanly, and one whose source fails is reset', async () => {
  for (const how of ['end', 'fail'] as const) {
    const tap = source();
    await using x = await startIngress({ routes: [tap.route] });
    const client = await RawClient.open(x.port);
    client.write(get('/stream'));
    await client.until(/first\n$/);
    assert.doesNotMatch(client.received, /transfer-encoding/i);
    tap[how]();
    assert.equal(await errorOf(client), how === 'end' ? undefined : 'ECONNRESET');
  }
});

test('a stream that outlasts the drain is reset', async () => {
  const tap = source();
  await using x = await startIngress({ routes: [tap.route] });
  const client = await RawClient.open(x.port);
  client.write(get('/stream'));
  await client.until(/first\n$/);
  await x.ingress.close(AbortSignal.abort());
  assert.equal(await errorOf(client), 'ECONNRESET');
  tap.end();
});

test('a forwarded answer that fails at the upstream is reset', async (t) => {
  const upstream = createServer((_req, res) => {
    res.write('first\n');
    setTimeout(() => res.destroy(), 50);
  }).listen(0, '127.0.0.1');
  await once(upstream, 'listening');
  t.after(() => upstream.close());
  const { port } = upstream.address() as AddressInfo;
  using proxy = new ReverseProxy({ upstreams: { up: () => ({ host: '127.0.0.1', port }) } });
  const forwarded = route({ ...base, body: 'forward', path: '/up', handler: () => proxy.answer('up') });
  await using x = await startIngress({ routes: [forwarded] });
  const client = await RawClient.open(x.port);
  client.write(get('/up'));
  assert.equal(await errorOf(client), 'ECONNRESET');
  assert.match(client.received, /first\n$/);
});

test('a cut answer over TLS is reset as well', async (t) => {
  const directory = tempDirFor(t);
  const tls = { cert_file: join(directory, 'cert.pem'), key_file: join(directory, 'key.pem') };
  const args = ['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '1'];
  execFileSync('openssl', [...args, '-subj', '/CN=localhost', '-keyout', tls.key_file, '-out', tls.cert_file], {
    stdio: 'ignore',
  });
  const tap = source();
  await using x = await startIngress({ routes: [tap.route], config: { tls } });
  const client = connect({ port: x.port, host: '127.0.0.1', rejectUnauthorized: false });
  let error: NodeJS.ErrnoException | undefined;
  client.on('error', (thrown) => (error = thrown));
  client.write(get('/stream'));
  let received = '';
  client.on('data', (chunk: Buffer) => (received += chunk.toString()));
  while (!received.endsWith('first\n')) await once(client, 'data');
  tap.fail();
  await eventually('the connection is closed', () => client.closed);
  assert.equal(error?.code, 'ECONNRESET');
});

test('events that are cut are reset, and the connection of a HEAD request is not marked', async () => {
  async function* broken(): AsyncGenerator<{ data: string }> {
    yield { data: 'first' };
    throw new Error('the source is gone');
  }
  const tap = source();
  const evented = route({ ...base, path: '/events', handler: () => events(broken()) });
  await using x = await startIngress({ routes: [evented, tap.route] });
  const client = await RawClient.open(x.port);
  client.write(get('/events'));
  assert.equal(await errorOf(client), 'ECONNRESET');
  const second = await RawClient.open(x.port);
  second.write('HEAD /stream HTTP/1.1\r\nHost: localhost\r\n\r\nGET /stream HTTP/1.1\r\nHost: localhost\r\n\r\n');
  await second.until(/first\n\r\n$/);
  tap.fail();
  assert.equal(await errorOf(second), undefined, 'chunks show the cut');
});
