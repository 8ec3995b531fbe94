/** Clients that are slow or leave in the middle: they are cut, and give back their memory and places; others are not affected. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { eventually } from '@ron/testkit';
import { RawClient } from '@ron/testkit/service';
import { concurrency } from '../../src/concurrency.ts';
import { TestNode } from '../node/node.ts';
import { addProvider, PATIENT, signed } from '../node/senders.ts';

const CLIENTS = 20;
const PIECE = 'x'.repeat(10_000);
const SHORT = ['--server.header_timeout=500ms', '--read_timeout=500ms'];

test('rude clients', async (t) => {
  const node = await TestNode.start(t, { inside: {}, flags: { interop: [...PATIENT, ...SHORT] } });
  await addProvider(await node.admin(), 'github');
  const { ingress, unverified } = node.interop;
  const port = Number(new URL(node.url).port);
  const user = await node.user();
  const clients = (): Promise<RawClient[]> => Promise.all(Array.from({ length: CLIENTS }, () => RawClient.open(port)));
  let n = 0;
  const others = async (): Promise<void> => {
    const reply = await node.send('POST', '/webhooks/github', signed('github', `id ${(n += 1)}`));
    assert.equal(reply.status, 202, reply.text);
  };
  const putSlots = (): Promise<number> => node.metric('interop', 'queue_depth{queue="put_requests"}');
  const nothingIsLeft = (): Promise<void> =>
    eventually(
      'memory, places and slots are free',
      async () => unverified.bytes === 0 && ingress.admission.inflight === 0 && (await putSlots()) === 0,
    );
  const opened = {
    webhook: { path: '/webhooks/github', headers: { 'x-hub-signature-256': `sha256=${'0'.repeat(64)}` } },
    put: { path: '/put', headers: user },
  } as const;

  await t.test('headers that never end are cut', async () => {
    const slow = await clients();
    for (const client of slow) client.write('POST /webhooks/github HTTP/1.1\r\nHost: localhost\r\nX-A: ');
    await others();
    for (const client of slow) assert.match(await client.rest(), /^HTTP\/1\.1 408 [^]*"code":"request_timeout"/);
    await nothingIsLeft();
  });

  for (const [name, { path, headers }] of Object.entries(opened)) {
    // A body holds memory of its budget or a slot of `/put`, and no place.
    const isReading = async (): Promise<boolean> =>
      ingress.admission.inflight === 0 &&
      (name === 'webhook' ? unverified.bytes === CLIENTS * PIECE.length : (await putSlots()) === CLIENTS);
    await t.test(`${name}: bodies that stop are cut, and their memory is free again`, async () => {
      const slow = await clients();
      for (const client of slow) {
        client.head('POST', path, { 'Content-Length': 100_000, ...headers });
        client.write(PIECE);
      }
      await eventually('all are being read', isReading);
      await others();
      // The client is late: no upstream is named, and `X-Reason` has no value for it.
      for (const client of slow) {
        const answer = await client.rest();
        assert.match(answer, /^HTTP\/1\.1 408 [^]*"code":"request_timeout"/);
        assert.doesNotMatch(answer, /x-reason/i);
      }
      await nothingIsLeft();
    });

    await t.test(`${name}: clients that leave in the middle leave nothing behind`, async () => {
      const leaving = await clients();
      for (const client of leaving) {
        client.head('POST', path, { 'Content-Length': 100_000, ...headers });
        client.write(PIECE);
      }
      await eventually('all are being read', isReading);
      for (const client of leaving) client.destroy();
      await nothingIsLeft();
      await others();
    });
  }

  await t.test('a client that leaves before its answer: the webhook is stored once', async () => {
    const mailbox = await node.mailbox();
    const before = (await mailbox.topic('hooks.github')).ledger.sent;
    const { body, headers } = signed('github', 'left');
    const client = await RawClient.open(port);
    client.head('POST', '/webhooks/github', { ...headers, 'Content-Length': body.length });
    client.write(body.toString());
    await eventually('it is stored', async () => (await mailbox.topic('hooks.github')).ledger.sent === before + 1);
    client.destroy();
    const again = await node.send('POST', '/webhooks/github', { headers, body });
    assert.deepEqual([again.status, again.json.duplicate], [202, true]);
    assert.equal((await mailbox.topic('hooks.github')).ledger.sent, before + 1);
    await nothingIsLeft();
  });
});

test('a webhook body that keeps coming is cut at the deadline of the body, and not before', async (t) => {
  const node = await TestNode.start(t, { services: ['kms', 'passport', 'interop'], inside: {} });
  await addProvider(await node.admin(), 'github');
  const port = Number(new URL(node.url).port);
  const client = await RawClient.open(port);
  const begun_ms = performance.now();
  client.head('POST', '/webhooks/github', { 'Content-Length': 1_000_000 });
  const sending = setInterval(() => client.write('x'.repeat(1000)), 20);
  t.after(() => clearInterval(sending));
  const answer = await client.rest();
  const took_ms = Math.round(performance.now() - begun_ms);
  assert.match(answer, /^HTTP\/1\.1 408 [^]*"code":"request_timeout"/);
  const { body, intake } = concurrency.deadlines;
  assert.ok(took_ms >= body.ms && took_ms < intake.ms, `the answer took ${took_ms} ms, the deadline is ${body.ms} ms`);
  const hurried = await RawClient.open(port);
  hurried.head('POST', '/webhooks/github', { 'Content-Length': 1_000_000, 'Request-Timeout': '0.1' });
  const early = await hurried.rest();
  assert.match(early, /^HTTP\/1\.1 408 [^]*"code":"request_timeout"/, 'also at a deadline of the client');
  assert.doesNotMatch(early, /x-reason/i);
  await eventually('its memory is free', () => node.interop.unverified.bytes === 0);
});
