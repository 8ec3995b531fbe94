/** Each event loop iteration starts a few requests of one address, and parses no more than it starts. */
import assert from 'node:assert/strict';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import type { Socket } from 'node:net';
import { test } from 'node:test';
import { json, route } from '@ron/ingress';
import type { RouteAnswer, RouteContext } from '@ron/ingress';
import { eventually } from '@ron/testkit';
import { RawClient } from '@ron/testkit/service';
import { startIngress } from './support.ts';

const STARTED_MAX = 32; // Twice the share of a pass: a flood begins in the middle of one.
const FLOOD = '127.0.0.2';
const QUIET = '127.0.0.3';
const get = (path: string): string => `GET ${path} HTTP/1.1\r\nHost: localhost\r\n\r\n`;

interface Counted extends AsyncDisposable {
  readonly port: number;
  /** Names of the started requests, in order. */
  readonly begun: string[];
  parsed: number;
}

async function start(): Promise<Counted> {
  const begun: string[] = [];
  const handler = ({ params }: RouteContext): RouteAnswer => {
    const { name } = params as { name: string };
    begun.push(name);
    return json(200, { name });
  };
  const base = { scope: null, lane: 'inline', summary: 'For a test.', body: 'none' } as const;
  const x = await startIngress({
    routes: [route({ ...base, method: 'GET', path: '/count/:name', handler })],
    // Nothing is in RAM: connections begin with the socket fast path, and every request goes on to the parser.
    fast: { route: 'GET /count/:name', lookup: () => undefined },
  });
  const onParsed = (): void => void (counted.parsed += 1);
  subscribe('http.server.request.start', onParsed);
  const counted: Counted = {
    port: x.port,
    begun,
    parsed: 0,
    async [Symbol.asyncDispose]() {
      unsubscribe('http.server.request.start', onParsed);
      await x[Symbol.asyncDispose]();
    },
  };
  return counted;
}

/** A client, and the server's end of its connection. */
async function bothEnds(port: number, local: string): Promise<[client: RawClient, socket: Socket]> {
  const { promise, resolve } = Promise.withResolvers<Socket>();
  const onSocket = (message: unknown): void => resolve((message as { socket: Socket }).socket);
  subscribe('net.server.socket', onSocket);
  const client = await RawClient.open(port, local);
  const socket = await promise;
  unsubscribe('net.server.socket', onSocket);
  return [client, socket];
}

const answers = (client: RawClient): string[] =>
  [...client.received.matchAll(/"name":"([^"]*)"/g)].map((match) => match[1]!);

test('simultaneous packets of one address start over several iterations, one of another address at once', async () => {
  await using x = await start();
  const flood: [RawClient, Socket][] = [];
  while (flood.length < 100) flood.push(await bothEnds(x.port, FLOOD));
  const [quiet, quiet_socket] = await bothEnds(x.port, QUIET);
  // As if the system reported all sockets in one event loop iteration.
  for (const [, socket] of flood) socket.emit('data', Buffer.from(get('/count/flood')));
  quiet_socket.emit('data', Buffer.from(get('/count/quiet')));
  assert.ok(x.parsed <= STARTED_MAX + 1, `${x.parsed} requests were parsed in one pass`);
  await eventually('the quiet one has begun', () => x.begun.includes('quiet'));
  assert.ok(x.begun.indexOf('quiet') <= STARTED_MAX, `${x.begun.indexOf('quiet')} others came first`);
  await eventually('all are answered', () => flood.every(([client]) => answers(client).length === 1));
  for (const [client] of [...flood, [quiet]] as const) client.destroy();
});

test('packets full of requests, empty lines and bodies are answered completely and in order', async () => {
  await using x = await start();
  const client = await RawClient.open(x.port, FLOOD);
  const names = (from: number): string[] => Array.from({ length: 20 }, (_, n) => String(from + n));
  const sent: string[] = [];
  const post = (name: string): string =>
    `POST /count/${name} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n12345`;
  for (const text of [
    names(100).map((name) => get(`/count/${name}`)),
    names(200).map((name) => `\r\n${get(`/count/${name}`)}`),
    names(300)
      .flatMap((name) => [get(`/count/${name}`), post(name)])
      .slice(0, 30),
  ]) {
    const before = sent.length;
    sent.push(
      ...text
        .join('')
        .matchAll(/GET \/count\/(\d+)/g)
        .map((match) => match[1]!),
    );
    const answered = (): number => client.received.split('HTTP/1.1 ').length - 1;
    const answered_before = answered();
    client.write(text.join(''));
    await eventually('all are answered', () => answered() - answered_before === text.length);
    assert.deepEqual(answers(client).slice(before), sent.slice(before));
  }
  client.destroy();
});

test('while a request runs, those behind it in its packet are not parsed', async () => {
  await using x = await start();
  const [client, socket] = await bothEnds(x.port, FLOOD);
  for (let packet = 0; packet < 3; packet += 1) {
    const before = x.parsed;
    socket.emit('data', Buffer.from(get('/count/a').repeat(20)));
    assert.equal(x.parsed - before, 1);
    await eventually('all are answered', () => answers(client).length === 20 * (packet + 1));
  }
  client.destroy();
});

test('a client that always has a few requests in flight is never refused', async () => {
  await using x = await start();
  const client = await RawClient.open(x.port, FLOOD);
  const [WINDOW, COUNT] = [30, 600];
  let written = 0;
  while (written < COUNT) {
    const text: string[] = [];
    while (written < COUNT && written - answers(client).length < WINDOW) text.push(get(`/count/${written++}`));
    client.write(text.join(''));
    const seen = answers(client).length;
    await eventually('some are answered', () => answers(client).length > seen);
  }
  await eventually('all are answered', () => answers(client).length === COUNT);
  assert.deepEqual(
    answers(client),
    Array.from({ length: COUNT }, (_, n) => String(n)),
  );
  client.destroy();
});
