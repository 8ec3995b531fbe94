/** Simple GETs for bytes in RAM are answered straight from the socket, under the same rules as all other requests. */
import assert from 'node:assert/strict';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { Server } from 'node:http';
import type { Socket } from 'node:net';
import { mock, test } from 'node:test';
import {
  bytes,
  createIngress,
  FastEntry,
  route,
  text,
  type RouteAnswer,
  type Ingress,
  type IngressInit,
} from '@ron/ingress';
import { Metrics } from '@ron/telemetry';
import { RonError } from '@ron/kernel';
import { Type } from '@ron/ingress';
import { eventually } from '@ron/testkit';
import { metricIn, RawClient } from '@ron/testkit/service';

const MIB = 1024 * 1024;
const SMALL = 'in memory';
const TAG = '"t"';

function entryOf(body: Buffer): FastEntry {
  const half = body.length >> 1;
  const ram = [body.subarray(0, half), body.subarray(half)];
  const source = { size: body.length, etag: TAG, media_type: 'text/plain', headers: { Vary: 'Accept' }, ram };
  return new FastEntry({ ...source, read: () => assert.fail('it lies in memory') });
}

interface Made extends AsyncDisposable {
  readonly ingress: Ingress;
  readonly port: number;
  /** How many requests went through Node's parser. */
  parsed(): number;
  metric(series: string): Promise<number>;
}

async function make(config: IngressInit['config'] = {}): Promise<Made> {
  const entries = new Map([
    ['/x/small', entryOf(Buffer.from(SMALL))],
    ['/x/large', entryOf(Buffer.alloc(MIB, 'l'))],
  ]);
  const metrics = new Metrics('x');
  const schema = { params: Type.Object({ name: Type.String() }) };
  const bytesOf = (name: string): RouteAnswer => {
    const entry = entries.get(`/x/${name}`);
    if (entry === undefined) throw new RonError('not_found', 'there is none');
    return bytes(entry.source);
  };
  const base = { scope: null, lane: 'inline', body: 'none', summary: 'For a test.' } as const;
  const ingress = await createIngress({
    service: 'x',
    version: '0',
    metrics,
    config: { sweep_ms: 20, ...config },
    routes: [
      route({ ...base, method: 'GET', path: '/x/:name', schema, handler: ({ params }) => bytesOf(params.name) }),
      route({ ...base, method: 'GET', path: '/other', handler: () => text(200, 'text/plain', 'other') }),
    ],
    fast: {
      route: 'GET /x/:name',
      lookup: (target) => entries.get(target),
      openNow: (target) => {
        if (target === '/x/broken') throw new Error('a defect');
        return target === '/x/now' ? entryOf(Buffer.from('at once')) : undefined;
      },
    },
  });
  const url = await ingress.listen();
  const emit = mock.method(Server.prototype, 'emit');
  return {
    ingress,
    port: Number(new URL(url).port),
    parsed: () => emit.mock.calls.filter((call) => call.arguments[0] === 'request').length,
    metric: async (series) => metricIn(await metrics.text(), series),
    async [Symbol.asyncDispose]() {
      emit.mock.restore();
      await ingress[Symbol.asyncDispose]();
    },
  };
}

const get = (path: string, ...headers: string[]): string =>
  `GET ${path} HTTP/1.1\r\n${['Host: localhost', ...headers].join('\r\n')}\r\n\r\n`;

/** The header lines of an answer, sorted by name, without those that differ between answers. */
const headOf = (answer: string): string[] =>
  answer
    .slice(0, answer.indexOf('\r\n\r\n'))
    .split('\r\n')
    .filter((line) => !/^(?:date|x-corr-id):/i.test(line))
    .toSorted();

test('the answer equals that of the parsed path', async () => {
  await using x = await make();
  for (const [headers, body] of [
    [[], SMALL],
    [['X-Corr-ID: mine'], SMALL],
    [[`If-None-Match: ${TAG}`], ''],
  ] as const) {
    const client = await RawClient.open(x.port);
    const before = x.parsed();
    client.write(get('/x/small', ...headers));
    await client.until(body === '' ? /\r\n\r\n/ : /in memory$/);
    const plain = client.received;
    assert.equal(x.parsed(), before, 'no parser was needed');
    client.received = '';
    client.write(get('/x/small', ...headers, 'X-Unknown: 1'));
    await client.until(body === '' ? /\r\n\r\n/ : /in memory$/);
    assert.equal(x.parsed(), before + 1);
    assert.deepEqual(headOf(plain), headOf(client.received));
    if (headers[0] === 'X-Corr-ID: mine') assert.match(plain, /\r\nX-Corr-ID: mine\r\n/);
    else assert.match(plain, /\r\nX-Corr-ID: [0-9A-Z]{26}\r\n/);
    assert.match(plain, /\r\nDate: \w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT\r\n/);
    client.destroy();
  }
  assert.equal(await x.metric('http_requests_total{route="GET /x/:name",class="2xx"}'), 4);
  assert.equal(await x.metric('http_requests_total{route="GET /x/:name",class="3xx"}'), 2);
  assert.equal(x.ingress.admission.inflight, 0);
});

/** A client, and the server's end of its connection. */
async function bothEnds(x: Made, local?: string): Promise<[client: RawClient, socket: Socket]> {
  const { promise, resolve } = Promise.withResolvers<Socket>();
  const onSocket = (message: unknown): void => resolve((message as { socket: Socket }).socket);
  subscribe('net.server.socket', onSocket);
  const client = await RawClient.open(x.port, local);
  const socket = await promise;
  unsubscribe('net.server.socket', onSocket);
  return [client, socket];
}

test('packets that arrive faster than answers are read are answered in order, if there is room', async () => {
  await using x = await make();
  const [client, socket] = await bothEnds(x);
  const paths = [...Array.from({ length: 8 }, () => '/x/large'), '/x/small', '/other'];
  for (const path of paths) {
    const packet = Buffer.from(get(path));
    // As if the system reported one socket several times in one event loop iteration.
    if (socket.isPaused()) socket.push(packet);
    else socket.emit('data', packet);
  }
  assert.ok(socket.isPaused(), 'the client has taken nothing yet');
  assert.equal(x.ingress.admission.inflight, 1);
  await client.until(/other$/);
  const bodies = client.received.split(/HTTP\/1\.1 200 OK\r\n[^]*?\r\n\r\n/).slice(1);
  // [storage I-2]
  assert.deepEqual(
    bodies.map((body) => `${body[0]}${body.length}`),
    [...Array.from({ length: 8 }, () => `l${MIB}`), `i${SMALL.length}`, 'o5'],
  );
  client.destroy();
  await eventually('its permit is free', () => x.ingress.admission.inflight === 0);
});

test('of very many simultaneous requests the first do not wait for the last', async () => {
  await using x = await make();
  const ends: [RawClient, Socket][] = [];
  // From several addresses: one alone does not get so many answers in one iteration.
  while (ends.length < 65) ends.push(await bothEnds(x, `127.0.0.${2 + (ends.length % 5)}`));
  const packet = Buffer.from(get('/x/small'));
  for (const [, socket] of ends) socket.emit('data', packet);
  assert.equal(x.ingress.admission.inflight, 1, 'all but the last are written');
  for (const [client] of ends) {
    await client.until(/in memory$/);
    client.destroy();
  }
  assert.equal(x.ingress.admission.inflight, 0);
});

test('a pending answer releases its permit when its connection closes', async () => {
  await using x = await make();
  const [client, socket] = await bothEnds(x);
  socket.emit('data', Buffer.from(get('/x/small')));
  assert.equal(x.ingress.admission.inflight, 1);
  socket.destroy();
  await eventually('its permit is free', () => x.ingress.admission.inflight === 0);
  client.destroy();
  assert.equal(await x.metric('http_requests_total{route="GET /x/:name",class="2xx"}').catch(() => 0), 0);
});

test('all other requests go to the parser, even after simple GETs on the same connection', async () => {
  await using x = await make();
  const small = get('/x/small');
  for (const [parts, expected] of [
    [[small.slice(0, 20), small.slice(20)], [SMALL]],
    [
      [small, small, small],
      [SMALL, SMALL, SMALL],
    ],
    [
      [small, get('/other')],
      [SMALL, 'other'],
    ],
    [[small + get('/other') + small], [SMALL, 'other', SMALL]],
    [
      [small, get('/x/small', 'Range: bytes=3-5')],
      [SMALL, 'mem'],
    ],
    [
      [small, get('/x/none')],
      [SMALL, 'not_found'],
    ],
    [
      [small, 'NONSENSE\r\n\r\n'],
      [SMALL, 'bad_request'],
    ],
    [
      [small, 'GET /x/small HTTP/1.1\r\nHost: elsewhere\r\n\r\n'],
      [SMALL, 'bad_host'],
    ],
    [
      [small, get('/x/small', 'Connection: close')],
      [SMALL, SMALL],
    ],
  ] as const) {
    const client = await RawClient.open(x.port);
    let pattern = '';
    for (const [index, part] of parts.entries()) {
      client.write(part);
      pattern += `HTTP/1\\.1[^]*${expected[index] ?? ''}`;
      if (parts.length === expected.length) await client.until(new RegExp(pattern));
    }
    const all = expected.map((body) => `HTTP/1\\.1[^]*${body}`).join('[^]*');
    await client.until(new RegExp(all));
    client.destroy();
  }
  await eventually('everything was released', () => x.ingress.admission.inflight === 0);
});

/** Sends requests and reads nothing, until the kernel's buffers are full and an answer waits. */
async function deafClient(x: Made): Promise<RawClient> {
  const deaf = await RawClient.open(x.port);
  deaf.socket.pause();
  const answered = (): Promise<number> => x.metric('http_requests_total{route="GET /x/:name",class="2xx"}');
  while (x.ingress.admission.inflight === 0) {
    const before = await answered();
    deaf.write(get('/x/large'));
    await eventually('it is answered, or waits', async () => {
      return x.ingress.admission.inflight > 0 || (await answered()) > before;
    });
  }
  return deaf;
}

test('a large body arrives completely, and one that the client does not read is cut and its permit released', async () => {
  await using x = await make({ write_timeout_ms: 300, rate_bytes_per_s_min: MIB });
  const client = await RawClient.open(x.port);
  for (let round = 0; round < 3; round++) {
    client.received = '';
    client.write(get('/x/large'));
    await client.until(new RegExp(`\r\n\r\nl{${MIB}}$`));
  }
  client.destroy();
  assert.equal(x.parsed(), 0);
  const deaf = await deafClient(x);
  assert.equal(x.parsed(), 0);
  const aborted = 'http_requests_total{route="GET /x/:name",class="aborted"}';
  await eventually('it is cut', async () => (await x.metric(aborted)) === 1);
  assert.equal(x.ingress.admission.inflight, 0);
  deaf.destroy();
});

test('at the in-flight limit the next request is refused', async () => {
  await using x = await make({ max_inflight: 1 });
  const deaf = await deafClient(x);
  const client = await RawClient.open(x.port);
  client.write(get('/x/small'));
  await client.until(/HTTP\/1\.1 \d+[^]*inflight_limit/);
  assert.equal(await x.metric('rejected_total{reason="inflight_limit"}'), 1);
  deaf.destroy();
  client.destroy();
  await eventually('the permit is released', () => x.ingress.admission.inflight === 0);
});

test('a silent connection gets 408, an idle one is closed, and an ended one is ended', async () => {
  await using x = await make({ header_timeout_ms: 200, idle_timeout_ms: 400 });
  const silent = await RawClient.open(x.port);
  assert.match(await silent.rest(), /^HTTP\/1\.1 408 [^]*request_timeout/);
  const idle = await RawClient.open(x.port);
  idle.write(get('/x/small'));
  assert.match(await idle.rest(), /in memory$/);
  const half = await RawClient.open(x.port);
  half.socket.end(get('/x/small'));
  assert.match(await half.rest(), /in memory$/);
  await eventually('no connection is left', () => x.ingress.admission.connections === 0);
});

test('during a drain simple GETs are refused like all others', async () => {
  await using x = await make({ drain_idle_ms: 2000 });
  const client = await RawClient.open(x.port);
  client.write(get('/x/small'));
  await client.until(/in memory$/);
  x.ingress.beginDrain();
  client.write(get('/x/small'));
  assert.match(await client.rest(), /HTTP\/1\.1 503 [^]*draining/);
});

test('while a hard gate is closed, simple GETs are refused like all others', async () => {
  await using x = await make();
  const gate = x.ingress.readiness.gate('disk', { kind: 'hard', refuses_work: true });
  const client = await RawClient.open(x.port);
  client.write(get('/x/small'));
  await client.until(/in memory$/);
  gate.close('it is gone');
  client.write(get('/x/small'));
  await client.until(/HTTP\/1\.1 503 [^]*not_ready/);
  client.destroy();
});

test('a connection on probation gets no answer from the socket fast path', async () => {
  await using x = await make({ connection_limit_per_ip: 1 });
  const first = await RawClient.open(x.port);
  first.write(get('/x/small'));
  await first.until(/in memory$/);
  const second = await RawClient.open(x.port);
  second.write(get('/x/small'));
  assert.match(await second.rest(), /^HTTP\/1\.1 429 [^]*conn_limit/);
  first.destroy();
});

test('over the rate the next request is refused', async () => {
  await using x = await make({ rps_limit: 0.1, rps_burst: 2 });
  const client = await RawClient.open(x.port);
  for (let sent = 1; sent <= 2; sent++) {
    client.write(get('/x/small'));
    await client.until(new RegExp(`(?:in memory[^]*){${sent}}$`));
  }
  client.write(get('/x/small'));
  await client.until(/HTTP\/1\.1 429 [^]*rate_limited/);
  assert.equal(await x.metric('rejected_total{reason="rate_limited"}'), 1);
  client.destroy();
});

test('bytes that can be read without waiting are answered from the socket, and the route reports their errors', async () => {
  await using x = await make();
  const client = await RawClient.open(x.port);
  client.write(get('/x/now'));
  await client.until(/at once$/);
  assert.equal(x.parsed(), 0);
  client.write(get('/x/broken'));
  await client.until(/not_found/);
  assert.equal(x.parsed(), 1);
  client.destroy();
  await eventually('everything was released', () => x.ingress.admission.inflight === 0);
});
