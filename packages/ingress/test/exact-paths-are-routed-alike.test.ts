/** A route's schemas are compiled at its first request: the answers to the first and to later ones must not differ. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Metrics } from '@ron/telemetry';
import { Type } from '@ron/ingress';
import { type Reply, send, type SendInit } from '@ron/testkit/service';
import { createIngress, json, route, type Ingress } from '../src/index.ts';

const Body = Type.Object({ name: Type.String({ maxLength: 8 }) }, { additionalProperties: false });

async function start(): Promise<Ingress> {
  const ingress = await createIngress({
    service: 'test',
    version: '0',
    metrics: new Metrics('test'),
    config: { body_bytes_max: 64 },
    routes: [
      route({
        method: 'POST',
        path: '/things',
        summary: 'Names a thing.',
        scope: null,
        lane: 'inline',
        body: 'buffered',
        schema: { body: Body, response: { 200: Body } },
        handler: ({ body, query, params }) => {
          const { name } = body;
          return json(200, { name: `${name}${Object.keys(query).join()}${Object.keys(params).join()}` });
        },
      }),
    ],
  });
  await ingress.listen();
  return ingress;
}

let direct: Ingress;

before(async () => {
  direct = await start();
  // Compiles the schemas.
  assert.equal((await post(direct, { body: '{"name":"a"}' })).status, 200);
});

after(() => direct[Symbol.asyncDispose]());

const JSON_TYPE = { 'content-type': 'application/json' };
const post = ({ url }: Ingress, init: SendInit): Promise<Reply> =>
  send(url, 'POST', '/things', { headers: JSON_TYPE, ...init });

const cases: [status: number, name: string, method: string, path: string, init: SendInit][] = [
  [200, 'a good one', 'POST', '/things', { headers: JSON_TYPE, body: '{"name":"b"}' }],
  [400, 'a wrong field', 'POST', '/things', { headers: JSON_TYPE, body: '{"name":"b","more":1}' }],
  [400, 'no JSON', 'POST', '/things', { headers: JSON_TYPE, body: '{"name"' }],
  [400, 'a poisoned key', 'POST', '/things', { headers: JSON_TYPE, body: '{"__proto__":{"name":"b"}}' }],
  [415, 'another media type', 'POST', '/things', { headers: { 'content-type': 'text/plain' }, body: 'b' }],
  [400, 'no body', 'POST', '/things', { headers: JSON_TYPE }],
  [413, 'too large', 'POST', '/things', { headers: JSON_TYPE, body: 'x'.repeat(65) }],
  [415, 'an unknown encoding', 'POST', '/things', { headers: { ...JSON_TYPE, 'content-encoding': 'x' }, body: 'b' }],
  [200, 'a query', 'POST', '/things?x=1', { headers: JSON_TYPE, body: '{"name":"b"}' }],
  [404, 'another case', 'POST', '/Things', { headers: JSON_TYPE, body: '{"name":"b"}' }],
  [404, 'a slash more', 'POST', '/things/', { headers: JSON_TYPE, body: '{"name":"b"}' }],
  [200, 'encoded', 'POST', '/%74hings', { headers: JSON_TYPE, body: '{"name":"b"}' }],
  [405, 'another method', 'GET', '/things', {}],
  [200, 'a time that is over', 'POST', '/things', { headers: { ...JSON_TYPE, deadline: '1' }, body: '{"name":"b"}' }],
];

for (const [right, name, method, path, init] of cases) {
  test(`the same answer: ${name}`, async () => {
    // New, so that this is the first request of its route.
    await using routed = await start();
    const [a, b] = [await send(direct.url, method, path, init), await send(routed.url, method, path, init)];
    assert.equal(a.status, right, a.text);
    const told = ({ status, headers, text }: Reply): unknown => {
      const { date: _date, 'x-corr-id': corr_id, ...rest } = headers;
      return { status, rest, text: text.replaceAll(String(corr_id), '') };
    };
    assert.deepEqual(told(a), told(b));
  });
}
