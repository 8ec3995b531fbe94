/** Pipelined requests: they are processed one at a time, in order, and waiting costs them no budget. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { json, route, stream } from '@ron/ingress';
import type { RouteAnswer, RouteContext } from '@ron/ingress';
import { sched } from '@ron/kernel';
import type { Parked } from '@ron/kernel';
import { Type } from '@ron/ingress';
import { eventually } from '@ron/testkit';
import { RawClient } from '@ron/testkit/service';
import { startIngress } from './support.ts';
import type { TestIngress } from './support.ts';

const base = { scope: null, lane: 'inline', summary: 'For a test.' } as const;
const get = (path: string, more = ''): string => `GET ${path} HTTP/1.1\r\nHost: localhost\r\n${more}\r\n`;
const statuses = (client: RawClient): number[] =>
  [...client.received.matchAll(/HTTP\/1\.1 (\d{3})/g)].map((match) => Number(match[1]));

const refusals = (x: TestIngress, code: string): Promise<number> => x.metric(`rejected_total{reason="${code}"}`);

interface Held extends TestIngress {
  /** Handlers of `GET /held`, in start order. */
  readonly held: Parked<void>[];
}

async function* large(): AsyncGenerator<string> {
  for (let n = 0; n < 256; n += 1) yield 'x'.repeat(64 * 1024);
}

async function start(config: Record<string, number> = {}): Promise<Held> {
  const held: Parked<void>[] = [];
  const hold = async (): Promise<RouteAnswer> => {
    const parked = sched.park<void>('test');
    held.push(parked);
    await parked.promise;
    return json(200, { held: held.indexOf(parked) });
  };
  const Body = Type.Object({ n: Type.Integer() }, { additionalProperties: false });
  const x = await startIngress({
    config,
    routes: [
      route({ ...base, method: 'GET', path: '/held', body: 'none', deadline_ms: 60_000, handler: hold }),
      route({
        ...base,
        method: 'GET',
        path: '/large',
        body: 'none',
        handler: () => stream(200, 'text/plain', large()),
      }),
      route({ ...base, method: 'GET', path: '/quick', body: 'none', handler: () => json(200, { quick: true }) }),
      route({
        ...base,
        method: 'GET',
        path: '/budget',
        body: 'none',
        deadline_ms: 60_000,
        handler: (context: RouteContext) => json(200, { fresh: context.deadline.remaining_ms > 59_500 }),
      }),
      route({
        ...base,
        method: 'POST',
        path: '/echo',
        body: 'buffered',
        schema: { body: Body },
        handler: ({ body }) => json(200, { n: body.n }),
      }),
    ],
  });
  return { ...x, held };
}

const post = (text: string): string =>
  `POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: ${text.length}\r\n\r\n${text}`;

test('a connection has one request in process and one permit, however many it pipelines', async () => {
  await using x = await start();
  const client = await RawClient.open(x.port);
  client.write(get('/held') + get('/held') + get('/quick') + post('{"n":4}'));
  for (let n = 1; n <= 2; n += 1) {
    await eventually('it has started', () => x.held.length === n);
    assert.equal(x.ingress.admission.inflight, 1);
    // [storage I-2]
    assert.equal(statuses(client).length, n - 1, 'answers leave in order');
    x.held[n - 1]!.wake();
  }
  await client.until(/"held":0\}[^]*"held":1\}[^]*"quick":true\}[^]*"n":4\}/);
  await eventually('its permit is free', () => x.ingress.admission.inflight === 0);
  client.destroy();
});

test('the last permit serves a whole pipeline: an answered request releases it before the next begins', async () => {
  await using x = await start({ max_inflight: 1 });
  const client = await RawClient.open(x.port);
  client.write(get('/quick').repeat(20));
  await eventually('all are answered', () => statuses(client).length === 20);
  assert.ok(statuses(client).every((status) => status === 200));
  client.destroy();
});

test('neither the budget nor the body timeout runs while a request waits', async () => {
  await using x = await start({ read_timeout_ms: 300 });
  const [client, clock] = [await RawClient.open(x.port), await RawClient.open(x.port)];
  client.write(`${get('/held')}${get('/budget')}${post('{"n":1}').slice(0, -3)}`);
  await eventually('the first runs', () => x.held.length === 1);
  // A stalled body on another connection is cut once the time of two bodies has passed.
  for (let n = 0; n < 2; n += 1) {
    const slow = n === 0 ? clock : await RawClient.open(x.port);
    slow.write(post('{"n":1}').slice(0, -3));
    assert.match(await slow.rest(), /408/);
  }
  x.held[0]!.wake();
  await client.until(/"fresh":true/);
  client.write(':1}');
  await client.until(/"n":1\}/);
  assert.deepEqual(statuses(client), [200, 200, 200]);
  client.destroy();
});

test('requests behind an answer that closes, and those of a client that left, never start', async () => {
  await using x = await start();
  const closing = await RawClient.open(x.port);
  closing.write(get('/held', 'Connection: close\r\n') + get('/held'));
  await eventually('the first runs', () => x.held.length === 1);
  x.held[0]!.wake();
  await closing.rest();
  const left = await RawClient.open(x.port);
  left.write(get('/held').repeat(3));
  await eventually('the first runs', () => x.held.length === 2);
  left.destroy();
  await eventually('it has left', () => x.ingress.admission.connections === 0);
  x.held[1]!.wake();
  await eventually('its permit is free', () => x.ingress.admission.inflight === 0);
  assert.equal(x.held.length, 2);
});

test('a body that fails while its request waits is refused in order, and nothing behind it is served', async () => {
  await using x = await start();
  const client = await RawClient.open(x.port);
  const chunked = 'Host: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n';
  client.write(`${get('/held')}POST /echo HTTP/1.1\r\n${chunked}\r\nno hex\r\n${get('/quick')}`);
  await eventually('the first runs', () => x.held.length === 1);
  x.held[0]!.wake();
  await client.rest();
  assert.deepEqual(statuses(client), [200, 400]);
  assert.equal(await x.metric('rejected_total{reason="bad_request"}'), 1);
});

test('over the pipelining limit the earlier requests are answered, one is refused, and the connection closes', async () => {
  await using x = await start({ pipelined_max: 3 });
  const client = await RawClient.open(x.port);
  client.write(get('/held') + get('/quick').repeat(10));
  await eventually('the first runs', () => x.held.length === 1);
  x.held[0]!.wake();
  await client.rest();
  assert.deepEqual(statuses(client), [200, 200, 200, 200, 429]);
  assert.equal(client.error, undefined);
});

test('CONNECT is refused in order: the earlier requests are answered, then the connection closes', async () => {
  await using x = await start();
  const connect = 'CONNECT a:1 HTTP/1.1\r\nHost: localhost\r\n\r\n';
  const client = await RawClient.open(x.port);
  client.write(get('/held') + get('/quick') + connect + get('/quick'));
  await eventually('the first runs', () => x.held.length === 1);
  await eventually('CONNECT is refused', async () => (await refusals(x, 'method_not_allowed')) === 1);
  assert.equal(client.received, '');
  x.held[0]!.wake();
  await client.rest();
  assert.deepEqual(statuses(client), [200, 200]);
  assert.equal(client.error, undefined);
  const alone = await RawClient.open(x.port);
  alone.write(connect);
  await alone.rest();
  assert.deepEqual(statuses(alone), [405]);
});

test('an answer larger than the buffers is sent even if CONNECT follows its request', async () => {
  await using x = await start();
  const client = await RawClient.open(x.port);
  client.socket.pause();
  client.write(`${get('/large')}CONNECT a:1 HTTP/1.1\r\nHost: localhost\r\n\r\n`);
  await eventually('CONNECT is refused', async () => (await refusals(x, 'method_not_allowed')) === 1);
  client.socket.resume();
  await client.rest();
  assert.deepEqual(statuses(client), [200]);
  assert.ok(client.received.endsWith('\r\n0\r\n\r\n'), 'it is whole');
});

const BEHIND = {
  garbage: [get('/quick'), 'GARBAGE\r\n\r\n'],
  CONNECT: [get('/quick'), 'CONNECT a:1 HTTP/1.1\r\nHost: localhost\r\n\r\n'],
  'a broken chunk': ['POST /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n', 'ZZZ\r\n'],
} as const;

for (const authorization of ['', 'Authorization: Bearer x\r\n']) {
  const kind = authorization === '' ? 'a request' : 'a request with a capability';
  for (const [name, [request, rest]] of Object.entries(BEHIND)) {
    test(`${name} behind ${kind} that waits for its refusal does not replace it`, async () => {
      await using x = await start({ max_inflight: 4, inflight_per_ip_max: 1, inflight_reserve: 0 });
      const holder = await RawClient.open(x.port);
      holder.write(get('/held'));
      await eventually('the share of the address is taken', () => x.held.length === 1);
      const client = await RawClient.open(x.port);
      client.write(request.replace('\r\n\r\n', `\r\n${authorization}\r\n`) + rest);
      await client.rest();
      assert.deepEqual(statuses(client), [429]);
      assert.match(client.received, /"code":"address_limit"/);
      assert.equal(client.error, undefined);
      holder.destroy();
    });
  }
}

test('a request with a body behind an answer that the client does not read waits for it, and is answered', async () => {
  await using x = await start({ write_timeout_ms: 60_000 });
  const client = await RawClient.open(x.port);
  client.write(get('/quick').repeat(2));
  await eventually('both are answered', () => statuses(client).length === 2);
  client.socket.pause();
  client.write(get('/large'));
  await eventually('the answer waits for the client', () => x.ingress.admission.inflight === 1);
  // Each in a packet of its own, and then several in one.
  for (const packet of [post('{"n":1}'), post('{"n":2}') + get('/quick') + post('{"n":3}')]) {
    client.write(packet);
    assert.equal((await fetch(`${x.url}/quick`)).status, 200, 'others are served');
  }
  client.socket.resume();
  await client.until(/"n":1\}[^]*"n":2\}[^]*"quick":true\}[^]*"n":3\}/);
  assert.ok(statuses(client).every((status) => status === 200));
  client.destroy();
});
