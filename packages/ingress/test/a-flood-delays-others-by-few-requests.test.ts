/**
 * Counts the requests of a flood that the listener parses and begins before it answers a client of another address. All
 * packets are in the socket buffers before the event loop reads the first of them, so the speed of the machine does not
 * matter. `attacks/floods-leave-others-their-turn.test.ts` measures the same promise as latency.
 */
import assert from 'node:assert/strict';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { test } from 'node:test';
import { FastEntry, route, text } from '@ron/ingress';
import { eventually } from '@ron/testkit';
import { RawClient } from '@ron/testkit/service';
import { startIngress, type TestIngress } from './support.ts';

const QUIET = '127.0.0.2';
const FLOODER = '127.0.0.3';
const CONNECTIONS = 200;
/** The second round meets connections that are known to pipeline. */
const ROUNDS = 3;
/** An address begins 16 requests in a pass of the event loop, twice that in its first; the request is served in two passes. */
const BEGUN_MAX = 3 * 16;

/** Requests of the flood while one request of the other client waited. */
interface Overtaken {
  readonly begun: number;
  readonly parsed: number;
}

const request = (path: string): string => `GET ${path} HTTP/1.1\r\nHost: localhost\r\n\r\n`;
const answersIn = (client: RawClient): number => client.received.split('HTTP/1.1 200 ').length - 1;

/** A server that counts the requests for its bytes in RAM and for its route. */
async function startCounting(): Promise<{ server: TestIngress; begun: () => number }> {
  let begun = 0;
  const body = Buffer.from('in memory');
  const source = { size: body.length, etag: '"t"', media_type: 'text/plain', ram: [body], read: () => assert.fail() };
  const entry = new FastEntry(source);
  const base = { scope: null, lane: 'inline', body: 'none', method: 'GET', summary: 'For a test.' } as const;
  const count = <T>(answer: T): T => {
    begun += 1;
    return answer;
  };
  const answer = text(200, 'text/plain', 'answered');
  const server = await startIngress({
    routes: [
      route({ ...base, path: '/ram', handler: () => assert.fail('it is answered from RAM') }),
      route({ ...base, path: '/route', handler: () => count(answer) }),
      route({ ...base, path: '/probe', handler: () => answer }),
    ],
    fast: { route: 'GET /ram', lookup: (target) => (target === '/ram' ? count(entry) : undefined) },
  });
  return { server, begun: () => begun };
}

/** Sends requests one after the other while the flood lasts. */
async function probeDuring(path: string, pipelined: number): Promise<Overtaken[]> {
  const { server, begun } = await startCounting();
  await using _ = server;
  let parsed = 0;
  const onParsed = (): void => void (parsed += 1);
  const quiet = await RawClient.open(server.port, QUIET);
  const flood = await Promise.all(Array.from({ length: CONNECTIONS }, () => RawClient.open(server.port, FLOODER)));
  const overtaken: Overtaken[] = [];
  subscribe('http.server.request.start', onParsed);
  try {
    for (let round = 0; round < ROUNDS; round += 1) {
      for (const client of flood) client.received = '';
      const end = begun() + CONNECTIONS * pipelined;
      for (const client of flood) client.write(request(path).repeat(pipelined));
      while (begun() < end) {
        const before = { begun: begun(), parsed };
        quiet.received = '';
        quiet.write(request('/probe'));
        await quiet.until(/answered$/);
        overtaken.push({ begun: begun() - before.begun, parsed: parsed - before.parsed });
      }
      for (const client of flood) await client.until(/(?:answered|in memory)$/);
      await eventually('all are answered', () => flood.every((client) => answersIn(client) === pipelined));
    }
  } finally {
    unsubscribe('http.server.request.start', onParsed);
    for (const client of [quiet, ...flood]) client.destroy();
  }
  return overtaken;
}

for (const [name, path, pipelined] of [
  ['bytes in RAM, one request at a time', '/ram', 1],
  ['bytes in RAM, pipelined', '/ram', 16],
  ['a route, one request at a time', '/route', 1],
  ['a route, pipelined', '/route', 16],
] as const) {
  test(`a request waits for at most ${BEGUN_MAX} requests of a flood from another address: ${name}`, async () => {
    const overtaken = await probeDuring(path, pipelined);
    const begun = Math.max(...overtaken.map((each) => each.begun));
    assert.ok(begun <= BEGUN_MAX, `${begun} requests of the flood were begun first`);
    // A packet of one request is parsed when it is read; the requests behind the first wait unparsed.
    const parsed = Math.max(...overtaken.map((each) => each.parsed));
    if (pipelined > 1) assert.ok(parsed <= BEGUN_MAX + 1, `${parsed} requests of the flood were parsed first`);
  });
}
