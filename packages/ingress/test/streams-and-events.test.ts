/** Answers of unknown length: streams with back-pressure, and server-sent events that hold no in-flight permit. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { bytes, events, json, route, stream } from '@ron/ingress';
import type { RouteAnswer, Route, RouteContext, ServerSentEvent } from '@ron/ingress';
import { RonError, Watch } from '@ron/kernel';
import { eventually } from '@ron/testkit';
import { RawClient, send } from '@ron/testkit/service';
import { rawAnswer, startIngress } from './support.ts';

const base = { method: 'GET', scope: null, lane: 'inline', body: 'none', summary: 'For a test.' } as const;
const get = (path: string, method = 'GET'): string => `${method} ${path} HTTP/1.1\r\nHost: localhost\r\n\r\n`;
const quick = route({ ...base, path: '/quick', handler: () => json(200, {}) });

/** A source that the test feeds. */
class Tap<T> {
  pulled = 0;
  returned = false;
  readonly #items = new Watch<readonly T[]>('tap', []);
  #ended = false;

  push(item: T): void {
    this.#items.set([...this.#items.value, item]);
  }

  end(): void {
    this.#ended = true;
    this.#items.set(this.#items.value);
  }

  /** Yields the items one by one until `signal` aborts. */
  async *until(signal: AbortSignal): AsyncGenerator<T, void, void> {
    const changes = this.#items.subscribe();
    try {
      for (let at = 0; ; at += 1) {
        this.pulled += 1;
        while (this.#items.value.length <= at && !this.#ended) await changes.changed(signal);
        if (this.#items.value.length <= at) return;
        yield this.#items.value[at]!;
      }
    } finally {
      this.returned = true;
    }
  }
}

const streamed = (tap: Tap<string>, more: Partial<Route> = {}): Route =>
  route({
    ...base,
    path: '/stream',
    handler: ({ gone }) => stream(200, 'application/x-ndjson', tap.until(gone)),
    ...more,
  });
const evented = (tap: Tap<ServerSentEvent>, more: Partial<Route> = {}): Route =>
  route({ ...base, path: '/events', handler: ({ gone }) => events(tap.until(gone)), ...more });

test('a stream sends its head with the first item, each item at once, and ends completely', async () => {
  const tap = new Tap<string>();
  await using x = await startIngress({ routes: [streamed(tap)] });
  const client = await RawClient.open(x.port);
  client.write(get('/stream'));
  await eventually('it waits for an item', () => tap.pulled === 1);
  assert.equal(client.received, '');
  tap.push('{"n":1}\n');
  const head = await client.until(/^HTTP\/1\.1 200 OK\r\n[^]*\{"n":1\}\n/);
  assert.match(head[0], /Content-Type: application\/x-ndjson/i);
  assert.match(head[0], /Transfer-Encoding: chunked/i);
  assert.match(head[0], /X-Content-Type-Options: nosniff/i);
  assert.equal(x.ingress.admission.inflight, 1, 'it holds its permit');
  tap.push('{"n":2}\n');
  await client.until(/\{"n":2\}\n/);
  tap.end();
  await client.until(/\r\n0\r\n\r\n$/);
  client.write(get('/stream', 'HEAD'));
  await client.until(/0\r\n\r\nHTTP\/1\.1 200 OK/);
  await eventually('its permit is free', () => x.ingress.admission.inflight === 0);
  client.destroy();
});

test('a source that fails before its first item is a problem, later a cut connection', async () => {
  async function* broken(items: number): AsyncGenerator<string> {
    for (let n = 0; n < items; n += 1) yield `${n}\n`;
    throw new RonError('integrity', 'no more');
  }
  const failing = (items: number): Route =>
    route({ ...base, path: `/${items}`, handler: () => stream(200, 'text/plain', broken(items)) });
  await using x = await startIngress({ routes: [failing(0), failing(2)] });
  assert.equal((await send(x.url, 'GET', '/0')).problem?.code, 'integrity');
  await assert.rejects(send(x.url, 'GET', '/2'));
  assert.ok(x.lines.some((line) => line.includes('answer cut')));
  await eventually('all permits are free', () => x.ingress.admission.inflight === 0);
});

test('the next item is pulled only once the client has read the last', async () => {
  let pulled = 0;
  async function* endless(signal: AbortSignal): AsyncGenerator<Uint8Array> {
    while (!signal.aborted) {
      pulled += 1;
      yield Buffer.alloc(1024 * 1024);
    }
  }
  const path = '/endless';
  const config = { write_timeout_ms: 300, rate_bytes_per_s_min: 1e9 };
  const handler = ({ gone }: RouteContext): ReturnType<typeof stream> => stream(200, 'text/plain', endless(gone));
  await using x = await startIngress({ config, routes: [route({ ...base, path, handler })] });
  const client = await RawClient.open(x.port);
  client.socket.pause();
  client.write(get(path));
  await eventually('it is cut', async () => (await x.metric('io_timeouts_total{op="write"}')) === 1);
  assert.ok(pulled < 64, `${pulled} MiB were pulled for a client that reads nothing`);
  await eventually('its permit is free', () => x.ingress.admission.inflight === 0);
  client.destroy();
});

test('the budget ends with the first item, not before', async () => {
  const tap = new Tap<string>();
  await using x = await startIngress({ routes: [streamed(tap, { deadline_ms: 200 })] });
  const late = await send(x.url, 'GET', '/stream');
  assert.equal(late.problem?.code, 'timeout');
  const series = 'io_timeouts_total{op="handler"}';
  assert.equal(await x.metric(series), 1);
  tap.push('one\n');
  const client = await RawClient.open(x.port);
  client.write(get('/stream'));
  await client.until(/one/);
  // A request that begins later with twice the budget exhausts it.
  await using y = await startIngress({ routes: [streamed(new Tap<string>(), { deadline_ms: 400 })] });
  assert.equal((await send(y.url, 'GET', '/stream')).problem?.code, 'timeout');
  tap.push('two\n');
  await client.until(/two/);
  assert.equal(await x.metric(series), 1, 'no budget ran out');
  client.destroy();
});

test('events arrive at once in their format, and hold no in-flight permit', async () => {
  const tap = new Tap<ServerSentEvent>();
  await using x = await startIngress({ config: { max_inflight: 1 }, routes: [evented(tap), quick] });
  const client = await RawClient.open(x.port);
  client.write(get('/events'));
  const head = await client.until(/^HTTP\/1\.1 200 OK\r\n[^]*?\r\n\r\n/);
  assert.match(head[0], /Content-Type: text\/event-stream/i);
  assert.match(head[0], /Cache-Control: no-store/i);
  assert.equal(x.ingress.admission.inflight, 0);
  assert.equal((await send(x.url, 'GET', '/quick')).status, 200, 'the only permit is free');
  tap.push({ event: 'change', data: 'one\ntwo', id: '7', retry_ms: 1500 });
  await client.until(/event: change\nid: 7\nretry: 1500\ndata: one\ndata: two\n\n/);
  client.destroy();
  await eventually('the source is closed', () => tap.returned);
  await eventually('its address is forgotten', () => x.ingress.admission.addresses === 0);
});

test('event streams are bounded, in total and per address', async () => {
  const tap = new Tap<ServerSentEvent>();
  await using x = await startIngress({ config: { events_max: 3 }, routes: [evented(tap)] });
  const open = async (address?: string): Promise<RawClient> => {
    const client = await RawClient.open(x.port, address);
    client.write(get('/events'));
    await client.until(/\r\n\r\n/);
    return client;
  };
  const status = (client: RawClient): number => rawAnswer(client.received).status;
  const clients = [await open(), await open(), await open(), await open('127.0.0.2'), await open('127.0.0.3')];
  assert.deepEqual(clients.map(status), [200, 200, 429, 200, 429]);
  await clients[2]!.until(/"code":"busy"/);
  assert.equal(await x.metric('rejected_total{reason="busy"}'), 2);
  for (const client of clients) client.destroy();
  await eventually('slots are released', async () => {
    const again = await open();
    again.destroy();
    return status(again) === 200;
  });
});

test('an event name with a line break cuts the stream', async () => {
  const tap = new Tap<ServerSentEvent>();
  await using x = await startIngress({ routes: [evented(tap)] });
  const client = await RawClient.open(x.port);
  client.write(get('/events'));
  await client.until(/\r\n\r\n/);
  tap.push({ event: 'a\ndata: forged', data: '' });
  assert.doesNotMatch(await client.rest(), /forged/);
});

test('a drain ends event streams with a comment and waits for streams', async () => {
  const tap = new Tap<ServerSentEvent>();
  const lines = new Tap<string>();
  await using x = await startIngress({ routes: [evented(tap), streamed(lines)] });
  const [listener, reader] = [await RawClient.open(x.port), await RawClient.open(x.port)];
  listener.write(get('/events'));
  await listener.until(/\r\n\r\n/);
  reader.write(get('/stream'));
  lines.push('one\n');
  await reader.until(/one/);
  const drained = x.ingress.drained(AbortSignal.timeout(10_000));
  assert.match(await listener.rest(), /: the service is shutting down\n\n\r\n0\r\n\r\n$/);
  assert.equal(reader.closed, false, 'a stream goes on');
  lines.push('two\n');
  lines.end();
  assert.match(await reader.rest(), /two\n\r\n0\r\n\r\n$/);
  assert.equal(await drained, true);
});

test('a quiet event stream carries comments, one with events carries none between them', async () => {
  const tap = new Tap<ServerSentEvent>();
  await using x = await startIngress({ config: { events_heartbeat_ms: 50 }, routes: [evented(tap)] });
  const client = await RawClient.open(x.port);
  client.write(get('/events'));
  await eventually('comments come', () => /\r\n\r\n(?:3\r\n:\n\n\r\n){3}/.test(client.received));
  tap.push({ data: 'one' });
  const after = /data: one\n\n\r\n(?:3\r\n:\n\n\r\n){2}/;
  await eventually('they come after an event, too', () => after.test(client.received));
  client.destroy();
  await eventually('the source is aborted', () => tap.returned);
  const calm = new Tap<ServerSentEvent>();
  await using y = await startIngress({ config: { events_heartbeat_ms: 60_000 }, routes: [evented(calm)] });
  const other = await RawClient.open(y.port);
  other.write(get('/events'));
  for (let n = 0; n < 20; n += 1) {
    calm.push({ data: `${n}` });
    await other.until(new RegExp(`data: ${n}\n`));
  }
  assert.doesNotMatch(other.received, /\n:\n/);
  other.destroy();
});

for (const kind of ['stream', 'events', 'bytes'] as const)
  for (const hasReturn of [true, false])
    test(`a drain waits for the source of ${kind} ${hasReturn ? 'with' : 'without'} return() whose client left`, async () => {
      const wait = Promise.withResolvers<void>();
      let running = 0;
      const iterator: AsyncIterator<never> = {
        next: async () => {
          running += 1;
          await wait.promise;
          running -= 1;
          return { done: true, value: undefined };
        },
        ...(hasReturn && { return: async () => ({ done: true, value: undefined }) }),
      };
      const items = { [Symbol.asyncIterator]: () => iterator };
      const read = (): AsyncIterable<never> => items;
      const answers = {
        stream: () => stream(200, 'text/plain', items),
        events: () => events(items),
        bytes: () => bytes({ size: 1, media_type: 'text/plain', read }),
      };
      const handler = answers[kind];
      await using x = await startIngress({ routes: [route({ ...base, path: '/source', handler })] });
      const client = await RawClient.open(x.port);
      client.write(get('/source'));
      await eventually('the source runs', () => running === 1);
      client.destroy();
      await eventually('the client is gone', () => x.ingress.admission.connections === 0);
      let isDrained = false;
      const drained = x.ingress.drained(AbortSignal.timeout(10_000)).then((clean) => {
        isDrained = true;
        return clean;
      });
      // Each round takes longer than a sweep, after which a drain that does not wait would have ended.
      for (let round = 0; round < 5; round += 1) await new Promise((resolve) => setTimeout(resolve, 30));
      assert.equal(isDrained, false);
      wait.resolve();
      assert.equal(await drained, true);
      assert.equal(running, 0);
    });

for (const kind of ['stream', 'events'] as const)
  for (const isAsync of [false, true])
    test(`the source of ${isAsync ? 'async' : 'inline'} ${kind} can wait and park longer than the budget`, async () => {
      async function* items(context: RouteContext): AsyncGenerator<string> {
        yield 'first';
        await context.deadline.within(new Promise((resolve) => setTimeout(resolve, 250)));
        yield 'second';
        await context.park(new Promise((resolve) => setTimeout(resolve, 10)));
        assert.equal(context.deadline.expired, false);
        yield 'third';
        await context.deadline
          .run(
            (signal) =>
              new Promise((_resolve, reject) => {
                signal.addEventListener('abort', () => reject(signal.reason as Error), { once: true });
              }),
          )
          .catch(() => (ended = true));
      }
      async function* asEvents(texts: AsyncIterable<string>): AsyncGenerator<ServerSentEvent> {
        for await (const data of texts) yield { data };
      }
      let ended = false;
      const answer = (context: RouteContext): RouteAnswer =>
        kind === 'stream' ? stream(200, 'text/plain', items(context)) : events(asEvents(items(context)));
      const handler = isAsync ? async (context: RouteContext): Promise<RouteAnswer> => answer(context) : answer;
      await using x = await startIngress({ routes: [route({ ...base, path: '/source', deadline_ms: 200, handler })] });
      const client = await RawClient.open(x.port);
      client.write(get('/source'));
      await client.until(/third/);
      assert.equal(x.ingress.admission.inflight, kind === 'stream' ? 1 : 0, 'events hold no permit after a park');
      assert.equal(await x.metric('io_timeouts_total{op="handler"}'), 0);
      client.destroy();
      await eventually('a client that leaves ends the deadline', () => ended);
      await eventually('all permits are free', () => x.ingress.admission.inflight === 0);
      await eventually('no address is left', () => x.ingress.admission.addresses === 0);
    });

test('a client that leaves a stream is not an error', async () => {
  let pulled = 0;
  async function* endless(): AsyncGenerator<Uint8Array> {
    for (; ; pulled += 1) yield Buffer.alloc(64 * 1024);
  }
  const handler = (): RouteAnswer => stream(200, 'text/plain', endless());
  await using x = await startIngress({ routes: [route({ ...base, path: '/endless', handler })] });
  for (let n = 0; n < 20; n += 1) {
    const client = await RawClient.open(x.port);
    client.write(get('/endless'));
    await client.until(/\r\n\r\n/);
    const from = pulled;
    await eventually('it moves', () => pulled > from + 8);
    client.socket.resetAndDestroy();
    await eventually('it is over', () => x.ingress.admission.inflight === 0);
  }
  assert.deepEqual(x.lines, []);
});
