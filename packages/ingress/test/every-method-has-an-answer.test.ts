/** A path is found first, then its method: other methods are 405 with `Allow`, standard or not, on every kind of path. */
import assert from 'node:assert/strict';
import { METHODS } from 'node:http';
import { after, before, test } from 'node:test';
import { Metrics } from '@ron/telemetry';
import { Type } from '@ron/ingress';
import { RawClient, send } from '@ron/testkit/service';
import { createIngress, json, route, type Ingress, type Route } from '../src/index.ts';
import { startService, type TestService } from './support.ts';

const NAME = { params: Type.Object({ name: Type.String() }, { additionalProperties: false }) };
const COMMON = { summary: 'A test.', scope: null, lane: 'inline', body: 'none' } as const;
const say = (method: Route['method'], path: string): Route =>
  route({ ...COMMON, method, path, handler: () => json(200, { row: `${method} ${path}` }) });

let ingress: Ingress;
let service: TestService;

before(async () => {
  ingress = await createIngress({
    service: 'test',
    version: '0',
    metrics: new Metrics('test'),
    routes: [
      say('GET', '/exact'),
      say('POST', '/o/batch'),
      route({ ...COMMON, method: 'GET', path: '/o/:name', schema: NAME, handler: ({ params }) => json(200, params) }),
      say('DELETE', '/o/:name'),
      say('GET', '/tree/*'),
      say('OPTIONS', '/options'),
      { ...say('GET', '/forwarded'), body: 'forward' },
    ],
  });
  await ingress.listen();
  service = await startService();
});
after(async () => {
  await ingress[Symbol.asyncDispose]();
  await service[Symbol.asyncDispose]();
});

const ALLOWED: Readonly<Record<string, string>> = {
  '/exact': 'GET, HEAD',
  '/exact?x=1': 'GET, HEAD',
  '/%65xact': 'GET, HEAD',
  '/o/batch': 'POST',
  '/o/one': 'GET, HEAD, DELETE',
  '/tree/a/b/c': 'GET, HEAD',
  '/options': 'OPTIONS',
  '/version': 'GET, HEAD',
  '/healthz': 'GET, HEAD',
};

test('every method that a path does not support is 405 with the supported ones', async () => {
  for (const [path, allow] of Object.entries(ALLOWED)) {
    for (const method of METHODS.filter((name) => name !== 'CONNECT' && !allow.split(', ').includes(name))) {
      const reply = await send(ingress.url, method, path);
      assert.equal(reply.status, 405, `${method} ${path}: ${reply.text}`);
      assert.equal(reply.headers['allow'], allow, `${method} ${path}`);
    }
    for (const method of allow.split(', '))
      assert.equal((await send(ingress.url, method, path)).status, 200, `${method} ${path}`);
  }
});

test('a method with a body and no content type is refused like any other, and nothing is logged', async () => {
  for (const method of ['QUERY', 'PROPFIND', 'REPORT', 'PATCH']) {
    for (const body of ['', 'x', '{"a":1}']) {
      const reply = await service.send(method, '/version', { body });
      assert.equal(reply.problem?.code, 'method_not_allowed', `${method}: ${reply.text}`);
    }
  }
  assert.deepEqual(service.lines, []);
});

test('an unknown path is 404 for every method', async () => {
  for (const method of METHODS.filter((name) => name !== 'CONNECT'))
    for (const path of ['/', '/exact/', '/Exact', '/o', '/o/a/b', '/nothing'])
      assert.equal((await send(ingress.url, method, path)).status, 404, `${method} ${path}`);
});

test('a literal path takes precedence over one with a parameter', async () => {
  assert.equal((await send(ingress.url, 'POST', '/o/batch')).text, '{"row":"POST /o/batch"}');
  assert.equal((await send(ingress.url, 'GET', '/o/batch')).status, 405);
  assert.equal((await send(ingress.url, 'GET', '/o/batch2')).text, '{"name":"batch2"}');
});

test('a parameter or wildcard that is too long is 414', async () => {
  for (const prefix of ['/o/', '/tree/', '/tree/a/']) {
    const room = 1024 - (prefix.length - prefix.indexOf('/', 1) - 1);
    assert.equal((await send(ingress.url, 'GET', `${prefix}${'a'.repeat(room)}`)).status, 200, prefix);
    const long = await send(ingress.url, 'GET', `${prefix}${'a'.repeat(room + 1)}`);
    assert.equal(long.problem?.code, 'uri_too_long', prefix);
  }
});

test('a query that repeats a key is 400, with and without a schema', async () => {
  for (const path of ['/exact', '/o/a', '/tree/a', '/readyz']) {
    for (const query of ['lane=a&lane=b', 'lane&lane', 'lane=&%6Cane=']) {
      const { status, problem } = await send(ingress.url, 'GET', `${path}?${query}`);
      assert.deepEqual([status, problem?.code], [400, 'validation'], `${path}?${query}`);
    }
    assert.equal((await send(ingress.url, 'GET', `${path}?lane=a`)).status, 200, path);
  }
  assert.equal((await send(ingress.url, 'GET', '/forwarded?a=1&a=2')).status, 200, 'the upstream checks it');
});

const optionsFor = async (target: string, ...lines: string[]): Promise<string> => {
  const client = await RawClient.open(Number(new URL(ingress.url).port));
  client.write(`OPTIONS ${target} HTTP/1.1\r\n${[...lines, 'Connection: close'].join('\r\n')}\r\n\r\n`);
  return await client.rest();
};

test('OPTIONS * lists the methods of the whole service', async () => {
  for (const target of ['*', 'http://localhost', 'HTTP://127.0.0.1:80']) {
    const answer = await optionsFor(target, 'Host: localhost');
    assert.match(answer, /^HTTP\/1\.1 204 /, target);
    assert.match(answer, /^Allow: GET, HEAD, POST, DELETE, OPTIONS\r$/m);
    assert.doesNotMatch(answer, /^Content-Length/im);
  }
});

test('OPTIONS * is subject to the guards, accepts no body, and is refused in a drain', async () => {
  assert.match(await optionsFor('*', 'Host: evil.example'), /^HTTP\/1\.1 421 /);
  assert.match(await optionsFor('http://evil.example', 'Host: localhost'), /^HTTP\/1\.1 421 /);
  assert.match(await optionsFor('*'), /^HTTP\/1\.1 400 /);
  assert.match(await optionsFor('*', 'Host: localhost', 'Content-Length: 1'), /^HTTP\/1\.1 400 /);
  assert.match(await optionsFor('http://localhost/', 'Host: localhost'), /^HTTP\/1\.1 404 /);
  await using draining = await startService();
  draining.notes.ingress.beginDrain();
  const client = await RawClient.open(draining.port);
  client.write('OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n');
  assert.match(await client.rest(), /^HTTP\/1\.1 503 /);
});

test('a row that is in the table twice fails the start', async () => {
  const twice = createIngress({
    service: 'test',
    version: '0',
    metrics: new Metrics('test'),
    routes: [say('PUT', '/a'), say('PUT', '/a')],
  });
  await assert.rejects(twice, /PUT \/a is in the route table twice/);
});
