/** SIGTERM under load: accepted webhooks are stored, new work gets 503, and the process ends in time with code 0. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { eventually } from '@ron/testkit';
import { RawClient } from '@ron/testkit/service';
import { checkAccepted } from '../node/check.ts';
import { Consumer } from '../node/consumer.ts';
import { Load } from '../node/load.ts';
import { TestNode } from '../node/node.ts';
import { addProvider, NO_RATES, signed } from '../node/senders.ts';

const DRAIN_MS = 2000;
/** The abort of stragglers, and the close of spool and receipt log. */
const END_MS_MAX = 8000;
const SCHEMES = ['github', 'stripe'] as const;

test('[interop I-6] [interop I-11] SIGTERM under load: each accepted delivery arrives, new work gets 503, the exit is clean', async (t) => {
  const node = await TestNode.start(t, {
    flags: { interop: [...NO_RATES, `--drain_deadline=${DRAIN_MS}ms`] },
  });
  const admin = await node.admin();
  for (const scheme of SCHEMES) await addProvider(admin, scheme);
  let url = node.url;
  const load = new Load(t, { url: () => url, schemes: SCHEMES, streams: 8 });
  load.start();
  await load.moves(100);

  // A body under way holds the drain open; a connection that is open already sends new work into it.
  const process = node.process('interop');
  const upload = await RawClient.open(process.port);
  upload.head('POST', '/put', { 'Content-Length': 1_000_000, ...(await node.user()) });
  const late = await RawClient.open(process.port);
  const { body, headers } = signed('github', 'late');
  const lines = { ...headers, 'Content-Length': body.length };
  late.head('GET', '/healthz');
  await late.until(/HTTP\/1\.1 200/);
  await eventually('the body is under way', async () => (await process.metric('http_requests_inflight')) > 1);
  const begun_ms = performance.now();
  process.child.kill('SIGTERM');
  await eventually('it drains', () => process.logged('stop requested: draining') !== undefined);
  late.received = '';
  late.head('POST', '/webhooks/github', lines);
  late.write(body.toString());
  await late.until(/"code":"draining"/);
  assert.match(late.received, /^HTTP\/1\.1 503 [^]*\r\nX-Reason: BACKPRESSURE\r\n/i);
  assert.equal(await process.exit(), 0);
  const took_ms = performance.now() - begun_ms;
  assert.ok(took_ms < DRAIN_MS + END_MS_MAX, `the end took ${Math.round(took_ms)} ms`);
  for (const client of [upload, late]) client.destroy();

  await node.restart('interop');
  url = node.url;
  await load.moves(20);
  await load.stop();
  // Others had no answer, because the port was closed, or their deadline passed on a busy machine.
  const unavailable = [...load.refusals.keys()].filter((refusal) => refusal.startsWith('503'));
  assert.deepEqual(unavailable, ['503 BACKPRESSURE']);
  const mailbox = await node.mailbox();
  const consumer = new Consumer(
    t,
    mailbox,
    SCHEMES.map((scheme) => `hooks.${scheme}`),
  );
  await checkAccepted(node, load, consumer);
  t.diagnostic(
    `${load.accepted.length} accepted, refused ${JSON.stringify([...load.refusals])}, the end took ${Math.round(took_ms)} ms`,
  );
});
