/** Routes that accept or send other media types than JSON: bodies without a parser, answers from memory, the document. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { test } from 'node:test';
import { gzipSync } from 'node:zlib';
import { data, json, route, schemaCheck, Type } from '@ron/ingress';
import type { Route } from '@ron/ingress';
import { eventually } from '@ron/testkit';
import { assertRefusal, RawClient, send } from '@ron/testkit/service';
import { startIngress } from './support.ts';

const RAW = 'application/x-raw';
const base = { scope: null, lane: 'inline', summary: 'For a test.' } as const;
const Named = Type.Object({ name: Type.String() }, { additionalProperties: false });

const either = (more: Partial<Route> = {}): Route =>
  route({
    ...base,
    method: 'POST',
    path: '/either',
    body: 'buffered',
    body_types: [RAW],
    answer_types: [RAW],
    schema: { body: Named, response: { 200: Type.Object({ parsed: Type.Boolean(), bytes: Type.Integer() }) } },
    handler: ({ body, body_bytes }) => json(200, { parsed: body !== undefined, bytes: body_bytes?.length ?? 0 }),
    ...more,
  });
const answers = (pieces: readonly Uint8Array[], method: 'GET' | 'POST' = 'POST'): Route =>
  route({ ...base, method, path: '/data', body: 'none', handler: () => data(201, RAW, pieces, { 'X-Extra': 'yes' }) });

test('a body of a listed type is passed as it is; JSON is still parsed and checked', async () => {
  await using x = await startIngress({ routes: [either()] });
  const post = (body: string, type?: string) =>
    send(x.url, 'POST', '/either', { body, headers: type === undefined ? {} : { 'content-type': type } });
  assert.deepEqual((await post('not JSON', RAW)).json, { parsed: false, bytes: 8 });
  assert.deepEqual((await post('{}', `${RAW.toUpperCase()} ; a=b`)).json, { parsed: false, bytes: 2 });
  assert.deepEqual((await post('{"name":"a"}', 'application/json')).json, { parsed: true, bytes: 12 });
  assertRefusal(await post('{}', 'application/json'), 400, 'validation');
  assertRefusal(await post('not JSON', 'application/json'), 400, 'bad_request');
  for (const type of [undefined, 'text/plain', `${RAW}x`, 'application/json, application/x-raw']) {
    const refused = await post('{"name":"a"}', type);
    assertRefusal(refused, 415, 'unsupported_media');
    assert.match(refused.problem!.detail, /application\/json or application\/x-raw/);
  }
});

test('decoded_bytes_max limits the decoded body below the limit of the listener', async () => {
  await using x = await startIngress({ routes: [either({ body_bytes_max: 1000, decoded_bytes_max: 1000 })] });
  const headers = { 'content-type': RAW, 'content-encoding': 'gzip' };
  const post = (bytes: number) =>
    send(x.url, 'POST', '/either', {
      headers,
      body: gzipSync(Buffer.from('0123456789'.repeat(bytes / 10)), { level: 0 }),
    });
  assert.deepEqual((await post(900)).json, { parsed: false, bytes: 900 });
  const packed = gzipSync(Buffer.alloc(5000, 'abcdefgh'));
  assertRefusal(await send(x.url, 'POST', '/either', { headers, body: packed }), 413, 'decompress_cap');
});

test('data is sent with its length and all headers, in one piece or several, and its pieces are not changed', async () => {
  const pieces = [Buffer.from('one'), Buffer.alloc(0), Buffer.alloc(300_000, 7), Buffer.from('two')];
  for (const given of [pieces, [Buffer.from('alone')], []]) {
    await using x = await startIngress({ routes: [answers(given)] });
    const whole = Buffer.concat(given);
    const reply = await send(x.url, 'POST', '/data');
    assert.equal(reply.status, 201);
    assert.deepEqual(reply.body, whole);
    assert.equal(reply.headers['content-length'], String(whole.length));
    assert.equal(reply.headers['content-type'], RAW);
    assert.equal(reply.headers['x-extra'], 'yes');
    assert.equal(reply.headers['x-content-type-options'], 'nosniff');
    assert.ok(reply.headers['x-corr-id'] !== undefined);
  }
});

test('HEAD of data has its length and no body', async () => {
  await using x = await startIngress({ routes: [answers([Buffer.from('hidden')], 'GET')] });
  const reply = await send(x.url, 'HEAD', '/data');
  assert.equal(reply.headers['content-length'], '6');
  assert.equal(reply.body.length, 0);
});

test('`gone` aborts if the client leaves while data is sent, and not after it has all of it', async () => {
  const gone: boolean[] = [];
  const large = [Buffer.alloc(64 * 1024 * 1024)];
  const watched = (path: string, pieces: readonly Uint8Array[]): Route =>
    route({
      ...base,
      method: 'GET',
      path,
      body: 'none',
      handler: (context) => {
        const index = gone.push(false) - 1;
        context.gone.addEventListener('abort', () => (gone[index] = true));
        return data(200, RAW, pieces);
      },
    });
  await using x = await startIngress({ routes: [watched('/large', large), watched('/small', [Buffer.from('x')])] });
  const client = await RawClient.open(x.port);
  client.head('GET', '/large');
  await client.until(/\r\n\r\n/);
  client.destroy();
  await eventually('gone', () => gone[0] === true);
  await send(x.url, 'GET', '/small');
  const leaving = await RawClient.open(x.port);
  leaving.head('GET', '/small');
  await leaving.until(/\r\n\r\nx/);
  leaving.destroy();
  await once(leaving.socket, 'close');
  // The listener handles a later connection after the close of the earlier ones.
  await send(x.url, 'GET', '/small');
  assert.deepEqual(gone, [true, false, false, false]);
});

test('the document lists all media types of bodies and of successful answers', async () => {
  await using x = await startIngress({ routes: [either()] });
  const operation = (await send(x.url, 'GET', '/openapi.json')).json.paths['/either'].post;
  const types = ['application/json', RAW];
  assert.deepEqual(Object.keys(operation.requestBody.content), types);
  assert.deepEqual(Object.keys(operation.responses['200'].content), types);
  assert.deepEqual(operation.requestBody.content[RAW].schema, { type: 'string', format: 'binary' });
});

test('schemaCheck refuses as the body of a route does, and names the place', () => {
  const check = schemaCheck(Named);
  assert.deepEqual(check({ name: 'a' }, 'items/0'), { name: 'a' });
  assert.throws(() => check({ name: 1 }, 'items/1'), { code: 'validation', message: 'items/1/name must be string' });
  assert.throws(() => check({ name: 'a', more: 1 }, 'items/2'), { message: 'items/2 has an unknown field: more' });
});
