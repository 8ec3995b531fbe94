/** Each limit on load is crossed once: status, problem code, Retry-After and metric. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { test } from 'node:test';
import { capability, rawAnswer, startService } from '../support.ts';
import { eventually } from '@ron/testkit';
import { RawClient } from '@ron/testkit/service';
import { assertCounted, assertRefusal } from './refusals.ts';

test('a request over the in-flight limit gets 429, health routes do not wait', async () => {
  await using service = await startService([], { max_inflight: 2, inflight_per_ip_max: 2 });
  const held = [service.send('GET', '/inline/300'), service.send('GET', '/inline/300')];
  await eventually('two in flight', () => service.notes.ingress.admission.inflight === 2);
  // [storage I-9] [kms I-9] [index I-9] [edge I-9] [interop I-9]
  assertRefusal(await service.send('GET', '/inline/0'), 429, 'inflight_limit');
  // [index I-13]
  assert.equal((await service.send('GET', '/healthz')).status, 200, 'health never waits behind work');
  assert.equal((await service.send('GET', '/metrics')).status, 200);
  for (const reply of await Promise.all(held)) assert.equal(reply.status, 200);
  assert.equal((await service.send('GET', '/inline/0')).status, 200, 'permits are released');
  await assertCounted(service, 'rejected_total{reason="inflight_limit"}');
});

test('a queued request releases its in-flight permit and reacquires it when its work begins', async () => {
  await using service = await startService(['--notes.workers=1'], { max_inflight: 2, inflight_per_ip_max: 4 });
  const { admission } = service.notes.ingress;
  const replies = [];
  for (let waiting = 0; waiting < 4; waiting += 1) {
    // Longer than it takes a busy machine to send all four.
    replies.push(service.send('GET', '/slow/1000'));
    await eventually('one executes, the others wait', async () => {
      const depth = await service.metric('queue_depth{queue="work"}');
      return depth === waiting && admission.inflight === 1;
    });
  }
  for (const reply of await Promise.all(replies)) assert.equal(reply.status, 200);
  await eventually('all permits are free', () => admission.inflight === 0);
});

test('a request over the rate limit gets 429 and the time until the next token', async () => {
  await using service = await startService([], { rps_limit: 0.1, rps_burst: 2 });
  const replies = await Promise.all([1, 2, 3].map(() => service.send('GET', '/greeting')));
  const refused = replies.filter((reply) => reply.status !== 200);
  assert.equal(refused.length, 1);
  assertRefusal(refused[0]!, 429, 'rate_limited');
  assert.ok(Number(refused[0]!.headers['retry-after']) >= 9, 'as long as the next token takes');
  assert.equal((await service.send('GET', '/readyz')).status, 200);
  await assertCounted(service, 'rejected_total{reason="rate_limited"}');
});

test('a request for a full work queue gets 429', async () => {
  await using service = await startService(['--notes.workers=1', '--notes.queue=1']);
  const running = service.send('GET', '/slow/400');
  await eventually('one runs', () => service.notes.ingress.admission.inflight === 1);
  const waiting = service.send('GET', '/slow/0');
  await eventually('one waits', async () => (await service.metric('queue_depth{queue="work"}')) === 1);
  assertRefusal(await service.send('GET', '/slow/0'), 429, 'busy');
  assert.deepEqual([(await running).status, (await waiting).status], [200, 200]);
  await assertCounted(service, 'busy_rejections_total{queue="work"}');
  assert.equal(await service.metric('queue_depth{queue="work"}'), 0);
});

test('a connection over the limit gets 429 before it is read', async () => {
  await using service = await startService([], { max_conns: 2 });
  const held = [await RawClient.open(service.port), await RawClient.open(service.port)];
  await eventually('two connections', () => service.notes.ingress.admission.connections === 2);
  const refused = await RawClient.open(service.port);
  refused.write('GET /greeting HTTP/1.1\r\nHost: localhost\r\n\r\n');
  const { status, head, problem } = rawAnswer(await refused.rest());
  assert.equal(status, 429);
  assert.equal(problem?.['code'], 'conns_max');
  assert.match(head, /^retry-after: \d+$/im);
  assert.match(head, /^connection: close$/im);
  await assertCounted(service, 'rejected_total{reason="conns_max"}');
  for (const client of held) client.destroy();
  await eventually('connections are released', () => service.notes.ingress.admission.connections === 0);
  assert.equal((await service.send('GET', '/greeting')).status, 200);
});

test('a connection over the limit of its address gets 429 unless it carries a capability', async () => {
  await using service = await startService([], { connection_limit_per_ip: 2 });
  const held = [await RawClient.open(service.port), await RawClient.open(service.port)];
  await eventually('two connections', () => service.notes.ingress.admission.connections === 2);
  // [index I-14]
  assertRefusal(await service.send('GET', '/greeting'), 429, 'conn_limit');
  await assertCounted(service, 'rejected_total{reason="conn_limit"}');
  const put = await service.send('PUT', '/notes/ours', { body: 'x', headers: capability() });
  assert.equal(put.status, 201, 'one of our own services gets through');
  for (const client of held) client.destroy();
});

test('a connection that presented a capability no longer counts for its address', async () => {
  await using service = await startService([], { connection_limit_per_ip: 1 });
  const own = await RawClient.open(service.port);
  const { authorization } = capability();
  own.write(
    `PUT /notes/o HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nAuthorization: ${authorization}\r\n\r\nx`,
  );
  await own.until(/201 Created/);
  assert.equal((await service.send('GET', '/greeting')).status, 200);
  own.destroy();
  await eventually('all gone', () => service.notes.ingress.admission.connections === 0);
  assert.equal(service.notes.ingress.admission.addresses, 0, 'nothing stays counted');
});

test('a closed gate refuses work while health routes answer', async () => {
  await using service = await startService();
  service.notes.gates.replay.close('replaying the log');
  assertRefusal(await service.send('GET', '/greeting'), 503, 'not_ready');
  assertRefusal(await service.send('GET', '/readyz'), 503, 'not_ready');
  assert.equal((await service.send('GET', '/healthz')).status, 200);
  service.notes.gates.replay.open();
  assert.equal((await service.send('GET', '/greeting')).status, 200);
  await assertCounted(service, 'rejected_total{reason="not_ready"}', 2);
});

test('a draining listener refuses work while health routes answer', async () => {
  await using service = await startService();
  service.notes.ingress.beginDrain();
  const refused = await service.send('GET', '/greeting');
  assertRefusal(refused, 503, 'draining');
  assert.equal(refused.headers.connection, 'close');
  assertRefusal(await service.send('GET', '/readyz'), 503, 'draining');
  assert.equal((await service.send('GET', '/healthz')).status, 200);
  assert.equal((await service.send('GET', '/metrics')).status, 200);
  await assertCounted(service, 'rejected_total{reason="draining"}', 2);
});

test('one connection cannot take all permits by pipelining', async () => {
  await using service = await startService();
  const client = await RawClient.open(service.port);
  client.write('GET /inline/100 HTTP/1.1\r\nHost: localhost\r\n\r\n'.repeat(40));
  await client.until(/inflight_limit/);
  client.destroy();
  await once(client.socket, 'close');
  await eventually('everything is released', () => service.notes.ingress.admission.inflight === 0);
});
