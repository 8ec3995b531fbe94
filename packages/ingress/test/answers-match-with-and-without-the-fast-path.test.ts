/** The same requests with the fast path on and off: the answers must not differ. */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type { Reply, SendInit } from '@ron/testkit/service';
import { capability, startService } from './support.ts';
import type { TestService } from './support.ts';

const BODY = Buffer.from(Array.from({ length: 3000 }, (_, i) => i % 251));
const FAST_OFF = ['--notes.ram_bytes=0'];

interface Case {
  readonly name: string;
  readonly method?: string;
  readonly path?: string;
  readonly init?: SendInit;
  readonly status: number;
  readonly code?: string;
  readonly body?: Buffer;
  readonly headers?: Readonly<Record<string, string>>;
}

let fast: TestService;
let routed: TestService;
let etag = '';

before(async () => {
  fast = await startService();
  routed = await startService(FAST_OFF);
  for (const service of [fast, routed]) {
    const stored = await service.send('PUT', '/notes/a', {
      body: BODY,
      headers: { ...capability(), 'content-type': 'application/x-note' },
    });
    assert.equal(stored.status, 201);
    etag = JSON.parse(stored.text).etag;
  }
  assert.ok(fast.notes.shelf.hot('/notes/a'), 'the fast path is on');
  assert.equal(routed.notes.shelf.hot('/notes/a'), undefined, 'the fast path is off');
});

after(async () => {
  await fast[Symbol.asyncDispose]();
  await routed[Symbol.asyncDispose]();
});

const get = (headers: Readonly<Record<string, string>>): SendInit => ({ headers });

const rangeCases = (): Case[] => [
  {
    name: 'the whole note',
    status: 200,
    body: BODY,
    headers: {
      'content-type': 'application/x-note',
      'content-length': '3000',
      etag,
      'accept-ranges': 'bytes',
      'cache-control': 'no-cache',
      vary: 'Accept-Encoding',
    },
  },
  { name: 'HEAD', method: 'HEAD', status: 200, body: Buffer.alloc(0), headers: { 'content-length': '3000', etag } },
  {
    name: 'a range',
    init: get({ range: 'bytes=10-19' }),
    status: 206,
    body: BODY.subarray(10, 20),
    headers: { 'content-range': 'bytes 10-19/3000', 'content-length': '10' },
  },
  { name: 'a suffix range', init: get({ range: 'bytes=-5' }), status: 206, body: BODY.subarray(2995) },
  { name: 'an open range', init: get({ range: 'bytes=2990-' }), status: 206, body: BODY.subarray(2990) },
  { name: 'several ranges are ignored', init: get({ range: 'bytes=0-1,5-6' }), status: 200, body: BODY },
  { name: 'another unit is ignored', init: get({ range: 'lines=0-1' }), status: 200, body: BODY },
  {
    name: 'HEAD ignores a range',
    method: 'HEAD',
    init: get({ range: 'bytes=0-1' }),
    status: 200,
    headers: { 'content-length': '3000' },
  },
  {
    name: 'a range outside',
    init: get({ range: 'bytes=3000-' }),
    status: 416,
    code: 'range_not_satisfiable',
    headers: { 'content-range': 'bytes */3000' },
  },
];

const conditionCases = (): Case[] => [
  {
    name: 'If-None-Match with the tag',
    init: get({ 'if-none-match': etag }),
    status: 304,
    body: Buffer.alloc(0),
    headers: { etag },
  },
  { name: 'If-None-Match with a weak tag', init: get({ 'if-none-match': `W/${etag}` }), status: 304 },
  { name: 'If-None-Match in a list', init: get({ 'if-none-match': `"x", ${etag}` }), status: 304 },
  { name: 'If-None-Match with a star', init: get({ 'if-none-match': '*' }), status: 304 },
  { name: 'If-None-Match with another tag', init: get({ 'if-none-match': '"x"' }), status: 200, body: BODY },
  { name: 'HEAD with If-None-Match', method: 'HEAD', init: get({ 'if-none-match': etag }), status: 304 },
  { name: 'If-Match with another tag', init: get({ 'if-match': '"x"' }), status: 412, code: 'precondition_failed' },
  { name: 'If-Match with the tag', init: get({ 'if-match': etag }), status: 200, body: BODY },
  {
    name: 'If-Range with the tag',
    init: get({ range: 'bytes=0-0', 'if-range': etag }),
    status: 206,
    body: BODY.subarray(0, 1),
  },
  { name: 'If-Range with another tag', init: get({ range: 'bytes=0-0', 'if-range': '"x"' }), status: 200, body: BODY },
];

const requestCases = (): Case[] => [
  {
    name: 'a correlation id is echoed',
    init: get({ 'x-corr-id': 'mine-1' }),
    status: 200,
    headers: { 'x-corr-id': 'mine-1' },
  },
  {
    name: 'a GET with a body',
    init: { body: 'x', headers: { 'content-length': '1' } },
    status: 400,
    code: 'bad_request',
  },
  {
    name: 'another method',
    method: 'DELETE',
    status: 405,
    code: 'method_not_allowed',
    headers: { allow: 'GET, HEAD, PUT' },
  },
  { name: 'another note', path: '/notes/b', status: 404, code: 'not_found' },
  { name: 'a name that the schema refuses', path: '/notes/A', status: 400, code: 'validation' },
  { name: 'a query that the route does not have', path: '/notes/a?x=1', status: 200, body: BODY },
  { name: 'no such route', path: '/nothing', status: 404, code: 'not_found' },
  { name: 'dot segments', path: '/notes/%2e%2e/a', status: 400, code: 'bad_path' },
  { name: 'an empty segment', path: '//notes/a', status: 400, code: 'bad_path' },
  { name: 'a strange Host', init: get({ host: 'evil.example' }), status: 421, code: 'bad_host' },
  { name: 'an expectation', init: get({ expect: 'miracles' }), status: 417, code: 'expectation_failed' },
];

const cases = (): Case[] => [...rangeCases(), ...conditionCases(), ...requestCases()];

/** The parts of an answer that must be equal on both paths. */
function comparable(reply: Reply): unknown {
  const { date: _date, 'x-corr-id': corr_id, 'retry-after': _retry, ...headers } = reply.headers;
  const body = reply.problem === undefined ? reply.body.toString('latin1') : { ...reply.problem, corr_id: '' };
  return { status: reply.status, headers, body, generated: corr_id?.length === 26 };
}

describe('the answer is correct, and the same on both paths', () => {
  for (const index of cases().keys()) {
    test(cases()[index]!.name, async () => {
      const { method = 'GET', path = '/notes/a', init, status, code, body, headers } = cases()[index]!;
      const [quick, slow] = await Promise.all([fast.send(method, path, init), routed.send(method, path, init)]);
      assert.deepEqual(comparable(quick), comparable(slow));
      assert.equal(quick.status, status);
      assert.equal(quick.problem?.code, code);
      if (body !== undefined) assert.deepEqual(quick.body, body);
      for (const [name, value] of Object.entries(headers ?? {})) assert.equal(quick.headers[name], value, name);
      assert.equal(quick.headers['x-content-type-options'], 'nosniff');
      assert.equal(quick.headers['referrer-policy'], 'no-referrer');
      assert.equal(quick.headers['access-control-allow-origin'], undefined);
      if (quick.problem !== undefined) assert.equal(quick.problem.corr_id, quick.headers['x-corr-id']);
    });
  }
});

test('both paths count the same', async () => {
  const scrape = async (service: TestService): Promise<string[]> =>
    (await service.metrics.text())
      .split('\n')
      .filter((line) => /^(?:http_requests_total|http_request_seconds_count|rejected_total)\b/.test(line));
  assert.deepEqual(await scrape(fast), await scrape(routed));
  assert.ok((await fast.metric('http_requests_total{route="GET /notes/:name",class="2xx"}')) > 10);
  assert.ok((await fast.metric('rejected_total{reason="precondition_failed"}')) > 0);
  for (const service of [fast, routed]) assert.equal(service.notes.ingress.admission.inflight, 0);
});
