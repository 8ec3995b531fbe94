/** CORS and `Cache-Status` are the same from the socket fast path, the parsed fast path and the route. */
import assert from 'node:assert/strict';
import { Agent } from 'node:http';
import { test } from 'node:test';
import { bytes, FastEntry, json, route } from '@ron/ingress';
import type { RamSource, Route } from '@ron/ingress';
import { RonError } from '@ron/kernel';
import type { Reply } from '@ron/testkit/service';
import { send } from '@ron/testkit/service';
import { startIngress } from './support.ts';

const BODY = Buffer.from('a few bytes');
const PAGE = 'https://map.example.org';
const base = { method: 'GET', scope: null, lane: 'inline', body: 'none', summary: 'For a test.' } as const;

const sourceOf = (): RamSource => ({
  size: BODY.length,
  etag: '"a"',
  media_type: 'text/plain',
  ram: [BODY],
  headers: { Vary: 'Accept-Encoding' },
  born_ms: Date.now() - 5000,
  cache_status: { text: 'test; hit', expires_ms: Date.now() + 55_000 },
  read: () => assert.fail('the bytes are in RAM'),
});

const routes = (source: RamSource): Route[] => [
  route({ ...base, path: '/bytes', cors: true, handler: () => bytes(source) }),
  route({ ...base, path: '/json', cors: true, handler: () => json(200, {}) }),
  route({
    ...base,
    path: '/refused',
    cors: true,
    handler: () => {
      throw new RonError('not_found', 'nothing is there');
    },
  }),
  route({ ...base, path: '/closed', handler: () => json(200, {}) }),
];

async function start(origins: readonly string[], isFast = true) {
  const source = sourceOf();
  const entry = new FastEntry(source);
  const served: FastEntry[] = [];
  const fast = {
    route: 'GET /bytes',
    lookup: (target: string) => (target === '/bytes' ? entry : undefined),
    served: (each: FastEntry) => void served.push(each),
  };
  const service = await startIngress({ routes: routes(source), cors: () => origins, ...(isFast && { fast }) });
  return { service, served };
}

/** The socket fast path answers the first two, the parsed fast path the others. */
const WAYS = [
  { name: 'a kept connection', method: 'GET', headers: {}, status: 200, keepAlive: true },
  {
    name: 'a tag on a kept connection',
    method: 'GET',
    headers: { 'if-none-match': '"a"' },
    status: 304,
    keepAlive: true,
  },
  { name: 'a GET', method: 'GET', headers: {}, status: 200, keepAlive: false },
  { name: 'a HEAD', method: 'HEAD', headers: {}, status: 200, keepAlive: false },
  { name: 'a tag', method: 'GET', headers: { 'if-none-match': '"a"' }, status: 304, keepAlive: false },
  { name: 'a range', method: 'GET', headers: { range: 'bytes=0-1' }, status: 206, keepAlive: false },
] as const;

async function sendBy(
  url: string,
  way: (typeof WAYS)[number],
  headers: Readonly<Record<string, string>>,
): Promise<Reply> {
  const agent = new Agent({ keepAlive: way.keepAlive });
  try {
    const reply = await send(url, way.method, '/bytes', { headers: { ...headers, ...way.headers }, agent });
    assert.equal(reply.status, way.status, way.name);
    return reply;
  } finally {
    agent.destroy();
  }
}

for (const isFast of [true, false]) {
  const suffix = isFast ? '' : ', without the fast path';
  test(`a page of a listed origin may read every answer${suffix}`, async () => {
    const { service, served } = await start([PAGE], isFast);
    await using _ = service;
    for (const way of WAYS) {
      const { name } = way;
      const reply = await sendBy(service.url, way, { origin: PAGE });
      assert.equal(reply.headers['access-control-allow-origin'], PAGE, name);
      assert.match(String(reply.headers['access-control-expose-headers']), /Cache-Status.*ETag/, name);
      assert.deepEqual(varies(reply), ['accept-encoding', 'origin'], name);
      assert.equal(reply.headers['age'], '5', name);
      assert.match(String(reply.headers['cache-status']), /^test; hit; ttl=5[45]$/, name);
    }
    assert.equal(served.length, isFast ? WAYS.length : 0, 'each answer of the fast path is counted once');
    for (const path of ['/json', '/refused']) {
      const reply = await send(service.url, 'GET', path, { headers: { origin: PAGE } });
      assert.equal(reply.headers['access-control-allow-origin'], PAGE, path);
      assert.deepEqual(varies(reply), ['origin'], path);
    }
  });

  test(`no other page may${suffix}`, async () => {
    const { service } = await start([PAGE], isFast);
    await using _ = service;
    for (const origin of [undefined, 'https://evil.example', `${PAGE}.evil.example`, 'null', `${PAGE}, ${PAGE}`]) {
      const headers: Record<string, string> = origin === undefined ? {} : { origin };
      for (const way of WAYS) {
        const { name } = way;
        const reply = await sendBy(service.url, way, headers);
        assert.equal(reply.headers['access-control-allow-origin'], undefined, `${name} of ${origin}`);
        assert.deepEqual(varies(reply), ['accept-encoding', 'origin'], name);
      }
    }
    const closed = await send(service.url, 'GET', '/closed', { headers: { origin: PAGE } });
    assert.equal(closed.headers['access-control-allow-origin'], undefined, 'a row without cors');
    assert.equal(closed.headers['vary'], undefined);
  });

  test(`without a list no answer has a header of CORS${suffix}`, async () => {
    const { service } = await start([], isFast);
    await using _ = service;
    for (const way of WAYS) {
      const { name } = way;
      const reply = await sendBy(service.url, way, { origin: PAGE });
      assert.equal(reply.headers['access-control-allow-origin'], undefined, name);
      assert.deepEqual(varies(reply), ['accept-encoding'], name);
    }
    const options = await send(service.url, 'OPTIONS', '/bytes', { headers: { origin: PAGE } });
    assert.equal(options.status, 204);
    assert.equal(options.headers['access-control-allow-methods'], undefined);
  });

  test(`with * every page may read, and answers do not vary by origin${suffix}`, async () => {
    const { service } = await start(['*'], isFast);
    await using _ = service;
    for (const way of WAYS) {
      const { name } = way;
      const reply = await sendBy(service.url, way, { origin: 'https://any.example' });
      assert.equal(reply.headers['access-control-allow-origin'], '*', name);
      assert.deepEqual(varies(reply), ['accept-encoding'], name);
    }
  });
}

test('a preflight of a listed origin is allowed to send conditions, ranges and a capability, and no other one is', async () => {
  const { service } = await start([PAGE]);
  await using _ = service;
  const preflight = (origin: string, path = '/bytes'): Promise<Reply> =>
    send(service.url, 'OPTIONS', path, { headers: { origin, 'access-control-request-method': 'GET' } });
  const allowed = await preflight(PAGE);
  assert.equal(allowed.status, 204);
  assert.equal(allowed.headers['access-control-allow-origin'], PAGE);
  assert.equal(allowed.headers['access-control-allow-methods'], 'GET, HEAD, OPTIONS');
  assert.match(String(allowed.headers['access-control-allow-headers']), /Authorization.*If-None-Match.*Range/);
  assert.equal(allowed.headers['access-control-allow-credentials'], undefined);
  assert.deepEqual(varies(allowed), ['origin']);
  const other = await preflight('https://evil.example');
  assert.equal(other.status, 204);
  for (const name of Object.keys(other.headers)) assert.ok(!name.startsWith('access-control-'), name);
  assert.equal((await preflight(PAGE, '/closed')).status, 405);
});

function varies({ headers }: Reply): string[] {
  const lines = [headers['vary'] ?? []].flat().join(', ').toLowerCase();
  return lines === '' ? [] : lines.split(/, */).toSorted((a, b) => (a < b ? -1 : 1));
}
