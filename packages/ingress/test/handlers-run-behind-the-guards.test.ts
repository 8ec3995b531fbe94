/** The services of the listener to handlers: forwarded addresses, contained defects, access logs, limits. */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { test } from 'node:test';
import { gzipSync } from 'node:zlib';
import { bytes, FastEntry, json, route } from '@ron/ingress';
import type { AccessCheck, AccessRequest } from '@ron/proto';
import type { RouteAnswer, ByteSource, RamSource, Route } from '@ron/ingress';
import { Deadline, RonError, WorkQueue } from '@ron/kernel';
import { Type } from '@ron/ingress';
import { eventually } from '@ron/testkit';
import { RawClient, send } from '@ron/testkit/service';
import { startIngress } from './support.ts';

const base = { scope: null, lane: 'inline', body: 'none', summary: 'For a test.' } as const;

const ram = Buffer.from('in ram');
const source = (more: Partial<RamSource> = {}): RamSource => ({
  size: ram.length,
  etag: '"ram"',
  media_type: 'text/plain',
  ram: [ram],
  async *read() {
    yield [ram];
  },
  ...more,
});

test('the client address comes from a proxy header only when the proxy is trusted', async () => {
  const seen: AccessRequest[] = [];
  const access: AccessCheck = {
    checkHeaders: (request) => {
      seen.push(request);
      return { ok: false, code: 'forbidden', reason: 'just looking' };
    },
  };
  const routes = [route({ ...base, scope: 'storage:get', method: 'GET', path: '/who', handler: () => json(200, {}) })];
  for (const trusted_proxies of [[], ['127.0.0.0/8']]) {
    await using x = await startIngress({ routes, access, config: { trusted_proxies } });
    await send(x.url, 'GET', '/who', { headers: { 'x-forwarded-for': '10.0.0.1, 192.0.2.7' } });
  }
  assert.deepEqual(
    seen.map((request) => request.source_ip),
    ['127.0.0.1', '192.0.2.7'],
  );
});

test('a trusted proxy forwards for many clients and is not counted as one', async () => {
  const routes = [route({ ...base, method: 'GET', path: '/a', handler: () => json(200, {}) })];
  await using x = await startIngress({
    routes,
    config: { trusted_proxies: ['127.0.0.1'], connection_limit_per_ip: 1 },
  });
  const held = [await RawClient.open(x.port), await RawClient.open(x.port)];
  assert.equal((await send(x.url, 'GET', '/a')).status, 200);
  for (const client of held) client.destroy();
});

test('a pending capability check is awaited within the budget of the request', async () => {
  const routes = [route({ ...base, scope: 'storage:get', method: 'GET', path: '/p', handler: () => json(200, {}) })];
  const never: AccessCheck = { checkHeaders: () => new Promise(() => undefined) };
  await using x = await startIngress({ routes, access: never, config: { request_deadline_ms: 50 } });
  assert.equal((await send(x.url, 'GET', '/p')).status, 504);
  assert.equal(x.ingress.admission.inflight, 0);
  const refuses: AccessCheck = { checkHeaders: () => Promise.reject(new RonError('not_ready', 'no keys')) };
  await using y = await startIngress({ routes, access: refuses });
  assert.equal((await send(y.url, 'GET', '/p')).status, 503);
});

test('the fast path uses the same checker, and a refusal is counted the same', async () => {
  const access: AccessCheck = {
    checkHeaders: ({ authorization, facts }) =>
      authorization === `Bearer ${facts?.name}`
        ? { ok: true, capability_id: 'c', chain: [], subject: 's', scopes: [], caveats: [], phase2: NOTHING }
        : { ok: false, code: 'unauthorized', reason: 'no' },
  };
  const routes = [route({ ...base, scope: 'storage:get', method: 'GET', path: '/f', handler: () => json(200, {}) })];
  const entry = new FastEntry(source(), { name: 'f' });
  await using x = await startIngress({
    routes,
    access,
    fast: { route: 'GET /f', lookup: (target) => (target === '/f' ? entry : undefined) },
  });
  assert.equal((await send(x.url, 'GET', '/f')).problem?.code, 'unauthorized');
  assert.equal((await send(x.url, 'GET', '/f', { headers: { authorization: 'Bearer f' } })).text, 'in ram');
  assert.equal(await x.metric('rejected_total{reason="unauthorized"}'), 1);
  assert.equal(await x.metric('http_requests_total{route="GET /f",class="4xx"}'), 1);
  assert.equal(x.ingress.admission.inflight, 0);
});

const NOTHING = {
  needsBody: false,
  update: () => undefined,
  end: () => undefined,
  facts: () => undefined,
  settle: () => undefined,
};

test('a defect in a cache, a checker or an entry costs one request, not the process', async () => {
  const routes = [route({ ...base, scope: 'storage:get', method: 'GET', path: '/f', handler: () => json(200, {}) })];
  const bad = new FastEntry(source({ headers: { 'X-Bad': 'line\nbreak' } }));
  const access: AccessCheck = {
    checkHeaders: ({ authorization }) => {
      if (authorization === undefined) throw new TypeError('checker');
      return { ok: true, capability_id: 'c', chain: [], subject: 's', scopes: [], caveats: [], phase2: NOTHING };
    },
  };
  const lookup = (target: string): FastEntry | undefined => {
    if (target === '/throws') throw new TypeError('cache');
    return target === '/f' ? bad : undefined;
  };
  await using x = await startIngress({ routes, access, fast: { route: 'GET /f', lookup } });
  assert.equal((await send(x.url, 'GET', '/throws')).status, 500);
  assert.equal((await send(x.url, 'GET', '/f')).status, 500, 'the checker throws');
  assert.equal((await send(x.url, 'GET', '/f', { headers: { authorization: 'x' } })).status, 500, 'the entry is bad');
  assert.equal(x.ingress.admission.inflight, 0, 'no permit is lost');
  assert.equal((await send(x.url, 'GET', '/healthz')).status, 200);
});

test('the access log has one line per answer, on both paths', async () => {
  const entry = new FastEntry(source());
  const routes = [route({ ...base, method: 'GET', path: '/f', handler: () => json(200, {}) })];
  const fast = { route: 'GET /f', lookup: (target: string) => (target === '/f' ? entry : undefined) };
  await using x = await startIngress({ routes, fast, config: { access_log: true } });
  await send(x.url, 'GET', '/f', { headers: { 'x-corr-id': 'fast' } });
  await send(x.url, 'GET', '/f?routed', { headers: { 'x-corr-id': 'routed' } });
  await eventually('two lines', () => x.lines.length === 2);
  const [first, second] = x.lines.map((line) => JSON.parse(line));
  assert.deepEqual([first.corr_id, first.status, first.url], ['fast', 200, '/f']);
  assert.deepEqual([second.corr_id, second.status, second.url], ['routed', 200, '/f?routed']);
});

test('a CORS preflight is refused', async () => {
  const routes = [route({ ...base, method: 'GET', path: '/a', handler: () => json(200, {}) })];
  await using x = await startIngress({ routes });
  const headers = { origin: 'https://evil.example', 'access-control-request-method': 'PUT' };
  const reply = await send(x.url, 'OPTIONS', '/a', { headers });
  assert.equal(reply.status, 405);
  assert.deepEqual(
    Object.keys(reply.headers).filter((name) => name.startsWith('access-control')),
    [],
  );
});

test('a parameter may contain an encoded slash only if the route allows it', async () => {
  const params = Type.Object({ kid: Type.String() });
  const kid = (path: string, encoded_slash: boolean): Route =>
    route({
      ...base,
      method: 'GET',
      path,
      schema: { params },
      encoded_slash,
      handler: ({ params: { kid: id } }) => json(200, { id }),
    });
  await using x = await startIngress({ routes: [kid('/keys/:kid', true), kid('/other/:kid', false)] });
  const reply = await send(x.url, 'GET', '/keys/acme%2Fsign%2Fed25519%23v1');
  assert.deepEqual(JSON.parse(reply.text), { id: 'acme/sign/ed25519#v1' });
  assert.equal((await send(x.url, 'GET', '/other/a%2Fb')).problem?.code, 'bad_path');
});

test('an answer that does not match its schema is a defect, not a leak', async () => {
  const response = { 200: Type.Object({ n: Type.Integer() }) };
  const routes = [
    route({
      ...base,
      method: 'GET',
      path: '/more',
      schema: { response },
      handler: () => json(200, { n: 1, secret: 'x' }),
    }),
    route({ ...base, method: 'GET', path: '/less', schema: { response }, handler: () => json(200, {}) }),
  ];
  await using x = await startIngress({ routes });
  assert.equal((await send(x.url, 'GET', '/more')).text, '{"n":1}');
  assert.equal((await send(x.url, 'GET', '/less')).status, 500);
});

test('a request is refused if the handler does not check facts that only the body contains', async () => {
  const access: AccessCheck = {
    checkHeaders: ({ facts_later }) => {
      assert.deepEqual(facts_later, ['tenant']);
      let stated = false;
      const phase2 = {
        ...NOTHING,
        facts: ({ tenant }: { tenant?: string | undefined }) => {
          stated = true;
          return tenant === 'acme' ? undefined : ({ ok: false, code: 'forbidden', reason: 'not yours' } as const);
        },
        settle: () => (stated ? undefined : ({ ok: false, code: 'forbidden', reason: 'nothing stated' } as const)),
      };
      return { ok: true, capability_id: 'c', chain: [], subject: 's', scopes: [], caveats: [], phase2 };
    },
  };
  const body = Type.Object({ tenant: Type.String() }, { additionalProperties: false });
  const routes = [
    route({
      ...base,
      method: 'POST',
      path: '/later',
      scope: 'kms:sign',
      body: 'buffered',
      schema: { body },
      facts_later: ['tenant'],
      handler: (context) => {
        context.actsOn({ tenant: context.body.tenant });
        return json(200, {});
      },
    }),
  ];
  await using x = await startIngress({ routes, access });
  const post = (tenant: string): ReturnType<typeof send> =>
    send(x.url, 'POST', '/later', {
      body: JSON.stringify({ tenant }),
      headers: { 'content-type': 'application/json' },
    });
  assert.equal((await post('acme')).status, 200);
  assert.equal((await post('other')).problem?.code, 'forbidden');
});

test('bytes: the budget applies until the first byte', async () => {
  const pieces = (first_ms: number, later_ms: number): ByteSource => ({
    size: 4,
    etag: '"slow"',
    media_type: 'text/plain',
    async *read() {
      for (const [i, letter] of [...Buffer.from('slow')].entries()) {
        await new Promise((resolve) => setTimeout(resolve, i === 0 ? first_ms : later_ms));
        yield [Uint8Array.of(letter)];
      }
    },
  });
  const queue = new WorkQueue('work', { capacity: 4, lanes: ['get'] });
  const ends = new AbortController();
  const worker = (async () => {
    for (let job = await queue.take(ends.signal); job !== undefined; job = await queue.take(ends.signal))
      await job.run();
  })().catch(() => undefined);
  const row = (path: string, first_ms: number, later_ms: number): Route =>
    route({
      ...base,
      lane: 'get',
      method: 'GET',
      path,
      deadline_ms: 150,
      handler: ({ deadline }) => {
        void deadline.signal;
        return bytes(pieces(first_ms, later_ms));
      },
    });
  await using x = await startIngress({
    routes: [row('/steady', 10, 100), row('/late', 2000, 0)],
    lanes: { get: queue },
  });
  const steady = await send(x.url, 'GET', '/steady');
  assert.equal(steady.text, 'slow', 'longer than its budget, but never late');
  assert.equal(await x.metric('io_timeouts_total{op="other"}'), 0);
  const late = await send(x.url, 'GET', '/late');
  assert.equal(late.status, 504);
  assert.equal(await x.metric('io_timeouts_total{op="other"}'), 1);
  ends.abort();
  await worker;
});

test('a streamed body has the limit of its route, with and without a coding, on the wire and decoded', async () => {
  const store = route({
    ...base,
    method: 'PUT',
    path: '/store',
    body: 'stream',
    body_bytes_max: 100_000,
    handler: async ({ stream }) => {
      let count = 0;
      for await (const chunk of stream) count += chunk.byteLength;
      return json(200, { count });
    },
  });
  await using x = await startIngress({
    routes: [store],
    config: { decompress_abs_bytes: 1_000_000, decompress_max_ratio: 5000 },
  });
  const put = (body: Buffer, more: Record<string, string> = {}): ReturnType<typeof send> =>
    send(x.url, 'PUT', '/store', { body, headers: { 'transfer-encoding': 'chunked', ...more } });
  assert.equal((await put(Buffer.alloc(100_000))).text, '{"count":100000}');
  assert.equal((await put(Buffer.alloc(100_001))).problem?.code, 'payload_too_large');
  const gzip = { 'content-encoding': 'gzip' };
  assert.equal((await put(gzipSync(Buffer.alloc(900_000)), gzip)).text, '{"count":900000}');
  assert.equal((await put(gzipSync(Buffer.alloc(1_000_001)), gzip)).problem?.code, 'decompress_cap');
  // Random bytes do not shrink: far more than the limit is sent.
  assert.equal((await put(gzipSync(randomBytes(600_000)), gzip)).problem?.code, 'payload_too_large');
});

test('a declared deadline is read for each request, so that a reload takes effect', async () => {
  let budget_ms = 50;
  const deadlines = { deadline: (name: string) => Deadline.after(name, budget_ms) };
  const handler = async (): Promise<RouteAnswer> => {
    await new Promise((resolve) => setTimeout(resolve, 200));
    return json(200, {});
  };
  const routes = [route({ ...base, method: 'GET', path: '/d', deadline: 'handler', handler })];
  await using x = await startIngress({ routes, deadlines });
  assert.equal((await send(x.url, 'GET', '/d')).status, 504);
  budget_ms = 5000;
  assert.equal((await send(x.url, 'GET', '/d')).status, 200);
  assert.equal(await x.metric('io_timeouts_total{op="handler"}'), 1);
});

test('a handler that ignores its budget holds its permit until it ends', async () => {
  const work = Promise.withResolvers<ReturnType<typeof json>>();
  const routes = [route({ ...base, method: 'GET', path: '/deaf', deadline_ms: 50, handler: () => work.promise })];
  await using x = await startIngress({ routes, config: { max_inflight: 1 } });
  assert.equal((await send(x.url, 'GET', '/deaf')).status, 504);
  assert.equal((await send(x.url, 'GET', '/deaf')).problem?.code, 'inflight_limit');
  work.resolve(json(200, {}));
  await eventually('its permit is free', () => x.ingress.admission.inflight === 0);
});

test('a handler sees repeated headers one by one, even those that Node drops', async () => {
  const row = route({
    ...base,
    method: 'GET',
    path: '/lines',
    handler: (ctx) =>
      json(200, [ctx.headerValues('x-signature'), ctx.headerValues('User-Agent'), ctx.headerValues('x')]),
  });
  await using x = await startIngress({ routes: [row] });
  const client = await RawClient.open(x.port);
  client.write(
    'GET /lines HTTP/1.1\r\nHost: localhost\r\nX-Signature: a, b\r\nUser-Agent: 1\r\nx-signature: c\r\nUser-Agent: 2\r\nConnection: close\r\n\r\n',
  );
  const body = (await client.rest()).split('\r\n\r\n')[1]!;
  assert.deepEqual(JSON.parse(body), [['a, b', 'c'], ['1', '2'], []]);
});
