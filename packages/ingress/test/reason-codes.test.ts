/** A service with reason codes reports them in the header, the problem and the counter, and reports no other code. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { bytes, createIngress, route } from '@ron/ingress';
import type { Ingress, ReasonsInit } from '@ron/ingress';
import { Metrics } from '@ron/telemetry';
import { RonError } from '@ron/kernel';
import type { ErrorCode } from '@ron/kernel';
import type { AccessCheck } from '@ron/proto';
import { Type } from '@ron/ingress';
import { metricIn, send, type Reply } from '@ron/testkit/service';

const REASONS: ReasonsInit = {
  metric: 'edge_rejects_total',
  names: ['not_allowed', 'amnesia', 'body_cap', 'invalid_range', 'rate_limit', 'timeout'],
  by_code: {
    payload_too_large: 'body_cap',
    range_not_satisfiable: 'invalid_range',
    rate_limited: 'rate_limit',
    timeout: 'timeout',
  },
};

const BODY = Buffer.from('a few bytes');
const SOURCE = { size: BODY.length, etag: '"a"', media_type: 'text/plain', ram: [BODY], read: () => assert.fail() };
const base = { scope: null, lane: 'inline', summary: 'For a test.' } as const;

function routes() {
  const schema = { params: Type.Object({ code: Type.String(), reason: Type.String() }) };
  return [
    route({ ...base, method: 'GET', path: '/bytes', body: 'none', handler: () => bytes(SOURCE) }),
    route({
      ...base,
      method: 'GET',
      path: '/fail/:code/:reason',
      body: 'none',
      schema,
      handler: ({ params: { code, reason } }) => {
        const init = reason === 'none' ? {} : { reason };
        throw new RonError(code as ErrorCode, 'refused', { ...init, details: { reason: 'a detail', other: 'kept' } });
      },
    }),
    route({
      ...base,
      method: 'GET',
      path: '/detail/:reason',
      body: 'none',
      schema: { params: Type.Object({ reason: Type.String() }) },
      handler: ({ params: { reason } }) => {
        throw new RonError('reject_policy', 'refused', { details: { reason } });
      },
    }),
    route({
      ...base,
      method: 'GET',
      path: '/late',
      body: 'none',
      deadline_ms: 20,
      handler: ({ deadline }) =>
        new Promise((_resolve, reject) => {
          deadline.signal.addEventListener('abort', () => reject(deadline.signal.reason));
        }),
    }),
    route({
      ...base,
      method: 'POST',
      path: '/small',
      body: 'buffered',
      body_bytes_max: 10,
      handler: () => assert.fail('the body is too large'),
    }),
  ];
}

let ingress: Ingress;
const metrics = new Metrics('edge');

before(async () => {
  ingress = await createIngress({ service: 'edge', version: '0', metrics, reasons: REASONS, routes: routes() });
  await ingress.listen();
});
after(() => ingress[Symbol.asyncDispose]());

const count = async (reason: string): Promise<number> =>
  metricIn(await metrics.text(), `edge_rejects_total{reason="${reason}"}`);

async function refused(status: number, reason: string | undefined, reply: Promise<Reply>): Promise<void> {
  const { status: found, headers, text } = await reply;
  assert.equal(found, status);
  assert.equal(headers['x-reason'], reason);
  assert.equal(JSON.parse(text).reason, reason);
}

test('all series are exported before the first refusal', async () => {
  const text = await metrics.text();
  for (const name of REASONS.names)
    assert.match(text, new RegExp(`^edge_rejects_total\\{reason="${name}"\\} \\d+$`, 'm'));
});

test('an error names its reason', async () => {
  await refused(403, 'not_allowed', send(ingress.url, 'GET', '/fail/reject_policy/not_allowed'));
  await refused(403, 'amnesia', send(ingress.url, 'GET', '/fail/reject_policy/amnesia'));
  assert.equal(await count('not_allowed'), 1);
  assert.equal(await count('amnesia'), 1);
});

test('a detail that is a code of the set is the reason everywhere', async () => {
  const before_count = await count('amnesia');
  await refused(403, 'amnesia', send(ingress.url, 'GET', '/detail/amnesia'));
  assert.equal(await count('amnesia'), before_count + 1);
});

test('refusals of the listener have the reason of their code', async () => {
  await refused(413, 'body_cap', send(ingress.url, 'POST', '/small', { body: 'far too many bytes' }));
  await refused(416, 'invalid_range', send(ingress.url, 'GET', '/bytes', { headers: { range: 'bytes=99-' } }));
  await refused(504, 'timeout', send(ingress.url, 'GET', '/late'));
  for (const reason of ['body_cap', 'invalid_range', 'timeout']) assert.equal(await count(reason), 1, reason);
});

test('a refusal by the rate limit has a reason too, although it reached no route', async () => {
  const limits = { rps_limit: 1, rps_burst: 1 };
  const own = new Metrics('edge');
  await using paced = await createIngress({
    service: 'edge',
    version: '0',
    metrics: own,
    reasons: REASONS,
    config: limits,
    routes: routes(),
  });
  await paced.listen();
  for (let i = 0; ; i += 1) {
    const reply = await send(paced.url, 'GET', '/bytes');
    if (reply.status === 200) continue;
    assert.equal(reply.headers['x-reason'], 'rate_limit');
    assert.equal(metricIn(await own.text(), 'edge_rejects_total{reason="rate_limit"}'), 1);
    return;
  }
});

test('a code outside the set, and a problem code without a reason, are not reported', async () => {
  const had = await metrics.text();
  for (const path of ['/fail/reject_policy/invented', '/fail/busy/none']) {
    const reply = await send(ingress.url, 'GET', path);
    assert.equal(reply.headers['x-reason'], undefined);
    assert.equal(Object.hasOwn(JSON.parse(reply.text), 'reason'), false, 'a detail of that name is not a reason code');
    assert.equal(JSON.parse(reply.text).other, 'kept');
  }
  const series = (text: string): string[] => text.split('\n').filter((line) => line.startsWith('edge_rejects_total'));
  assert.deepEqual(series(await metrics.text()), series(had));
});

test('a table with a reason outside its set is refused at start', async () => {
  const reasons = { ...REASONS, by_code: { busy: 'invented' } } as ReasonsInit;
  await assert.rejects(
    createIngress({ service: 'edge', version: '0', metrics: new Metrics('edge'), reasons, routes: [] }),
    /invented/,
  );
});

test('without a counter of its own a reason is counted in rejected_total in place of the code', async () => {
  const own = new Metrics('interop');
  const reasons: ReasonsInit = { names: ['RATE_LIMIT'], by_code: { rate_limited: 'RATE_LIMIT' } };
  const rejected = own.counter('rejected_total', 'Refusals.', { reason: ['RATE_LIMIT', 'rate_limited', 'conflict'] });
  const counters = { rejected, io_timeouts: own.counter('io_timeouts_total', 'Timeouts.', { op: ['handler'] }) };
  const table = { service: 'interop', version: '0', metrics: own, counters, reasons, routes: routes() };
  await using listening = await createIngress(table);
  await listening.listen();
  await refused(429, 'RATE_LIMIT', send(listening.url, 'GET', '/fail/rate_limited/none'));
  await refused(409, undefined, send(listening.url, 'GET', '/fail/conflict/none'));
  const text = await own.text();
  const counted = (reason: string): number => metricIn(text, `rejected_total{reason="${reason}"}`);
  assert.deepEqual([counted('RATE_LIMIT'), counted('rate_limited'), counted('conflict')], [1, 0, 1]);
});

test('a capability that expired or was revoked has the reason of its cause, another one that of its code', async () => {
  const reasons: ReasonsInit = {
    names: ['BAD_ORIGIN', 'EXPIRED_TOKEN'],
    by_code: { unauthorized: 'BAD_ORIGIN' },
    by_cause: { expired: 'EXPIRED_TOKEN', revoked: 'EXPIRED_TOKEN' },
  };
  const guarded = route({
    ...base,
    scope: 'interop:put',
    method: 'GET',
    path: '/guarded',
    body: 'none',
    handler: () => assert.fail(),
  });
  const access: AccessCheck = {
    checkHeaders: ({ authorization: cause }) => {
      const refusal = { ok: false, code: 'unauthorized', reason: 'refused' } as const;
      return cause === 'expired' || cause === 'revoked' ? { ...refusal, cause } : refusal;
    },
  };
  await using listening = await createIngress({
    service: 'interop',
    version: '0',
    metrics: new Metrics('interop'),
    counters: {
      rejected: new Metrics('a').counter('rejected_total', 'Refusals.', { reason: ['BAD_ORIGIN', 'EXPIRED_TOKEN'] }),
      io_timeouts: new Metrics('b').counter('io_timeouts_total', 'Timeouts.', { op: ['handler'] }),
    },
    reasons,
    access,
    routes: [guarded],
  });
  await listening.listen();
  const get = (authorization: string): Promise<Reply> =>
    send(listening.url, 'GET', '/guarded', { headers: { authorization } });
  await refused(401, 'EXPIRED_TOKEN', get('expired'));
  await refused(401, 'EXPIRED_TOKEN', get('revoked'));
  await refused(401, 'BAD_ORIGIN', get('forged'));
});
