/** Servers that lie to the client of mailbox, break off, or never accept a connection. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { Agent } from 'node:https';
import { connect, createServer, type AddressInfo, type Socket } from 'node:net';
import { test, type TestContext } from 'node:test';
import { addressOf, MailboxClient } from '@ron/client';
import { nodeFetch } from '@ron/client/node';
import { isRonError } from '@ron/kernel';
import { BATCH_MEDIA_TYPE, encodeBatch } from '@ron/proto';
import { readBody, serve, type Handler } from './fake-server.ts';

const PAYLOAD = new TextEncoder().encode('payload');
const HEAD = {
  id: '01J9ZK3Q7BC4D8WZ1V00A7K2M4',
  seq: 5,
  delivery: 1,
  token: 'abc',
  attempts: 1,
  sent_ms: 1_700_000_000_000,
  headers: {},
  b3: addressOf(PAYLOAD),
};
const STORED = { id: HEAD.id, seq: 5, duplicate: false, b3: HEAD.b3 };

async function clientOf(t: TestContext, handler: Handler): Promise<MailboxClient> {
  const url = await serve(t, async (request, response) => {
    await readBody(request);
    await handler(request, response);
  });
  return new MailboxClient({ url, capability: 'x', deadline_ms: 2000 });
}
const answering = (t: TestContext, type: string, body: Uint8Array | string): Promise<MailboxClient> =>
  clientOf(t, (_request, response) =>
    response.writeHead(200, { 'Content-Type': type, 'Content-Length': Buffer.byteLength(body) }).end(body),
  );
const isLie = (error: unknown): boolean => isRonError(error, 'integrity');

test('a payload that differs from its hash is never returned', async (t) => {
  const good = Buffer.concat(encodeBatch([{ head: HEAD, payload: PAYLOAD }]));
  const [message] = await (await answering(t, BATCH_MEDIA_TYPE, good)).receive('a');
  assert.deepEqual(message!.payload, PAYLOAD);
  const flipped = Buffer.from(good);
  flipped[flipped.length - 1]! ^= 1;
  await assert.rejects((await answering(t, BATCH_MEDIA_TYPE, flipped)).receive('a'), isLie);
  await assert.rejects((await answering(t, BATCH_MEDIA_TYPE, flipped)).peek('a'), isLie);
});

test('a batch that is cut, malformed or of another type is refused', async (t) => {
  const good = Buffer.concat(encodeBatch([{ head: HEAD, payload: PAYLOAD }]));
  for (const cut of [0, 3, 5, 12, 20, good.length - 1])
    await assert.rejects((await answering(t, BATCH_MEDIA_TYPE, good.subarray(0, cut))).receive('a'), isLie, `${cut}`);
  await assert.rejects((await answering(t, 'application/json', '{"messages":[]}')).receive('a'), isLie);
  const huge = Buffer.from(good);
  huge.writeUInt32BE(0xffff_ffff, 8);
  await assert.rejects((await answering(t, BATCH_MEDIA_TYPE, huge)).receive('a'), isLie);
  for (const head of [
    { ...HEAD, id: 'x' },
    { ...HEAD, seq: -1 },
    { ...HEAD, seq: '5' },
    { ...HEAD, delivery: 1.5 },
    { ...HEAD, token: undefined },
    { ...HEAD, headers: { a: 1 } },
    { ...HEAD, headers: null },
    { ...HEAD, b3: 'x' },
    { ...HEAD, key: 1 },
    { ...HEAD, replay_of: 1 },
  ]) {
    const body = Buffer.concat(encodeBatch([{ head, payload: PAYLOAD }]));
    await assert.rejects((await answering(t, BATCH_MEDIA_TYPE, body)).receive('a'), isLie, JSON.stringify(head));
  }
});

test('a send is believed only if each stored message has the hash of its payload', async (t) => {
  const message = { topic: 'a', payload: PAYLOAD };
  const sent = async (results: unknown): Promise<unknown> =>
    await (await answering(t, 'application/json', JSON.stringify({ results }))).send([message]);
  assert.deepEqual(await sent([STORED]), [STORED]);
  const refused = [{ error: 'full', detail: 'no room' }];
  assert.deepEqual(await sent(refused), refused);
  for (const results of [
    [{ ...STORED, b3: addressOf(new Uint8Array(1)) }],
    [{ ...STORED, id: 'x' }],
    [{ ...STORED, seq: -1 }],
    [{ ...STORED, duplicate: undefined }],
    [{ error: { a: 1 }, detail: 'x' }],
    [{ error: 'busy', detail: 'x' }],
    [{ error: 'toString', detail: 'x' }],
    [{ error: 'full' }],
    [{ error: 'conflict', detail: 'x', id: 7 }],
    [null],
    [],
    [STORED, STORED],
    {},
    null,
  ])
    await assert.rejects(sent(results), isLie, JSON.stringify(results));
});

test('results of tokens are as many as the tokens, and known', async (t) => {
  for (const results of [[], ['ok', 'ok'], ['maybe'], [null], 'ok'])
    await assert.rejects((await answering(t, 'application/json', JSON.stringify({ results }))).ack('a', ['t']), isLie);
});

const POLICY = {
  max_messages: 1,
  max_bytes: 1,
  max_age_ms: 1,
  max_deliveries: 1,
  window_ms: 1,
  dead_max_age_ms: 1,
  dead_max_messages: 1,
  dead_max_bytes: 1,
};
const TOPIC = {
  topic: 'a',
  ledger: { sent: 1, acked: 0, ready: 1, delayed: 0, leased: 0, dead: 0, gone: 0 },
  bytes: 7,
  dead_bytes: 0,
  oldest_s: null,
  sent_per_s: 0.5,
  acked_per_s: 0,
  policy: POLICY,
  policy_set: ['max_bytes'],
  window_ms: 1,
  keys: 0,
};
const DEAD = {
  id: HEAD.id,
  seq: 5,
  reason: 'nacked',
  attempts: 1,
  error: 'no',
  headers: {},
  b3: HEAD.b3,
  bytes: 7,
  sent_ms: 1,
  dead_ms: 2,
};
const TASK = { id: 'x', kind: 'prove', state: 'running', started_ms: 1, progress: {} };

/** Each answer with one field removed, and of another type. */
function* spoiled(good: object): Generator<object> {
  for (const [name, value] of Object.entries(good)) {
    yield { ...good, [name]: undefined };
    yield { ...good, [name]: typeof value === 'string' ? 7 : 'x' };
    yield { ...good, [name]: -1 };
    if (typeof value === 'object' && value !== null && !Array.isArray(value))
      for (const inner of spoiled(value)) yield { ...good, [name]: inner };
  }
}

const ANSWERS: readonly {
  readonly good: object;
  readonly call: (mailbox: MailboxClient) => Promise<unknown>;
  readonly wrong?: readonly object[];
}[] = [
  {
    good: { topics: [TOPIC] },
    call: (mailbox) => mailbox.topics(),
    wrong: [{ topics: [TOPIC, null] }, ...spoiled(TOPIC).map((topic) => ({ topics: [topic] }))],
  },
  { good: TOPIC, call: (mailbox) => mailbox.topic('a'), wrong: [{ ...TOPIC, policy_set: ['x'] }] },
  { good: TOPIC, call: (mailbox) => mailbox.setPolicy('a', {}) },
  {
    good: { dead: [DEAD] },
    call: (mailbox) => mailbox.deadLetters('a'),
    wrong: [
      { dead: [{ ...DEAD, reason: 'bored' }] },
      { dead: [DEAD], next: '5' },
      ...spoiled(DEAD)
        .filter((letter) => !('error' in letter && letter.error === undefined))
        .map((letter) => ({ dead: [letter] })),
    ],
  },
  { good: { replayed: 1, left: 0 }, call: (mailbox) => mailbox.replayDead('a') },
  { good: { deleted: 1, left: 0 }, call: (mailbox) => mailbox.deleteDead('a'), wrong: [{ replayed: 1, left: 0 }] },
  { good: TASK, call: (mailbox) => mailbox.startProve(), wrong: [{ ...TASK, kind: 'scrub' }] },
  { good: TASK, call: (mailbox) => mailbox.task('x'), wrong: [{ ...TASK, state: 'asleep' }] },
];

test('an answer that lacks a field or has another type in it is refused', async (t) => {
  for (const { good, call, wrong = [] } of ANSWERS) {
    let answer: unknown = good;
    const mailbox = await clientOf(t, (_request, response) => {
      const body = JSON.stringify(answer);
      response.writeHead(200, { 'Content-Type': 'application/json', 'Content-Length': Buffer.byteLength(body) });
      response.end(body);
    });
    await call(mailbox);
    for (const lie of [{}, [], null, 7, ...spoiled(good), ...wrong]) {
      answer = lie;
      await assert.rejects(call(mailbox), isLie, `${String(call)}: ${JSON.stringify(lie)}`);
    }
  }
});

test('a send, receive or ack whose answer is lost is not repeated; a read is', async (t) => {
  const requests: string[] = [];
  const mailbox = await clientOf(t, (request, response) => {
    requests.push(`${request.method} ${request.url}`);
    response.destroy();
  });
  await assert.rejects(mailbox.send([{ topic: 'a', payload: PAYLOAD }]));
  await assert.rejects(mailbox.receive('a'));
  await assert.rejects(mailbox.ack('a', ['t']));
  await assert.rejects(mailbox.nack('a', ['t']));
  await assert.rejects(mailbox.extend('a', ['t'], 1000));
  await assert.rejects(mailbox.replayDead('a'));
  await assert.rejects(mailbox.deleteDead('a'));
  assert.equal(requests.length, 7, requests.join(', '));
  assert.equal(new Set(requests).size, 7);
  await assert.rejects(mailbox.topic('a'));
  assert.equal(requests.length, 10);
});

test('an endless answer is cut at its limit', async (t) => {
  const mailbox = await clientOf(t, (_request, response) => {
    response.writeHead(200, { 'Content-Type': BATCH_MEDIA_TYPE });
    const item = Buffer.concat(
      encodeBatch([{ head: { ...HEAD, b3: addressOf(new Uint8Array(0)) }, payload: new Uint8Array(0) }]),
    );
    response.write('RONB');
    for (let count = 0; count < 1000; count += 1) response.write(item.subarray(4));
  });
  await assert.rejects(mailbox.receive('a', { max: 128 }), isLie);
});

test('connect_ms limits the time of a connection', async () => {
  const agent = new Agent();
  // The address of the host is never found, so the connection is never established.
  const createConnection = (): Socket => connect({ host: 'nowhere', port: 1, lookup: () => undefined });
  const fetch = nodeFetch({ tls: Object.assign(agent, { createConnection }) });
  const mailbox = new MailboxClient({ url: 'https://nowhere', fetch, connect_ms: 50, deadline_ms: 60_000 });
  const isLate = (error: unknown): boolean =>
    isRonError(error, 'unreachable') && error.details?.['system_code'] === 'ETIMEDOUT';
  await assert.rejects(mailbox.ack('a', ['t']), isLate);
});

test('connect_ms does not limit a request on an established connection', async (t) => {
  const server = createServer((socket) => t.after(() => socket.destroy())).listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => server.close());
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const mailbox = new MailboxClient({ url, fetch: nodeFetch(), connect_ms: 50, deadline_ms: 300 });
  await assert.rejects(mailbox.ack('a', ['t']), (error) => isRonError(error, 'timeout'));
});
