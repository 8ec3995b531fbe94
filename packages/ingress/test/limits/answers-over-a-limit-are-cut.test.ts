/** Answers that fail, stall or exceed their budget end as a problem or a cut connection, and are counted. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { capability, startService } from '../support.ts';
import { eventually } from '@ron/testkit';
import { RawClient } from '@ron/testkit/service';
import { assertCounted, assertRefusal } from './refusals.ts';

const MIB = 1024 * 1024;

test('a client that does not read is cut, and holds one chunk instead of the whole body', async () => {
  await using service = await startService(['--notes.ram_bytes=0'], {
    write_timeout_ms: 200,
    rate_bytes_per_s_min: MIB,
  });
  await service.send('PUT', '/notes/big', { body: Buffer.alloc(24 * 1024 * 1024), headers: capability() });
  const client = await RawClient.open(service.port);
  client.socket.pause();
  client.write('GET /notes/big HTTP/1.1\r\nHost: localhost\r\n\r\n');
  await eventually('the answer flows', () => service.notes.ingress.admission.inflight === 1);
  await eventually('it is cut', async () => (await service.metric('io_timeouts_total{op="write"}')) === 1);
  await eventually('its connection is closed', () => service.notes.ingress.admission.connections === 0);
  assert.equal(service.notes.ingress.admission.inflight, 0);
  client.destroy();
});

test('a client that does not read an answer from RAM is cut', async () => {
  await using service = await startService(['--notes.ram_bytes=64MiB'], {
    write_timeout_ms: 200,
    rate_bytes_per_s_min: MIB,
  });
  await service.send('PUT', '/notes/big', { body: Buffer.alloc(24 * 1024 * 1024), headers: capability() });
  assert.ok(service.notes.shelf.hot('/notes/big'));
  const client = await RawClient.open(service.port);
  client.socket.pause();
  client.write('GET /notes/big HTTP/1.1\r\nHost: localhost\r\n\r\n');
  await eventually('the answer flows', () => service.notes.ingress.admission.inflight === 1);
  await eventually('it is cut', async () => (await service.metric('io_timeouts_total{op="write"}')) === 1);
  await eventually('its connection is closed', () => service.notes.ingress.admission.connections === 0);
  assert.equal(service.notes.ingress.admission.inflight, 0);
  client.destroy();
});

test('small answers from RAM that the client does not read hold one permit per connection and are cut', async (t) => {
  await using service = await startService([], { write_timeout_ms: 200, rate_bytes_per_s_min: MIB });
  await service.send('PUT', '/notes/some', { body: Buffer.alloc(900_000), headers: capability() });
  assert.ok(service.notes.shelf.hot('/notes/some'));
  const { admission } = service.notes.ingress;
  const tryEnter = admission.tryEnter.bind(admission);
  // Permits in use after each admitted request. A poll could miss a permit, which is returned once the client stalls.
  const inflight: number[] = [];
  t.mock.method(admission, 'tryEnter', (...args: Parameters<typeof tryEnter>) => {
    const result = tryEnter(...args);
    inflight.push(admission.inflight);
    return result;
  });
  const client = await RawClient.open(service.port);
  client.socket.pause();
  client.write('GET /notes/some HTTP/1.1\r\nHost: localhost\r\n\r\n'.repeat(16));
  await eventually('it is cut', async () => (await service.metric('io_timeouts_total{op="write"}')) === 1);
  assert.equal(Math.max(...inflight), 1, 'permits of one connection');
  await eventually('its permit is free', () => service.notes.ingress.admission.inflight === 0);
  const aborted = 'http_requests_total{route="GET /notes/:name",class="aborted"}';
  await eventually('the cut answer is counted', async () => (await service.metric(aborted)) > 0);
  client.destroy();
});

test('a source that fails at once is a problem, one that fails later is a cut connection', async () => {
  await using service = await startService(['--notes.ram_bytes=0']);
  await service.send('PUT', '/notes/bad', { body: Buffer.alloc(300_000), headers: capability() });
  service.notes.shelf.break_after_chunks = 0;
  assertRefusal(await service.send('GET', '/notes/bad'), 500, 'integrity');
  service.notes.shelf.break_after_chunks = 2;
  await assert.rejects(service.send('GET', '/notes/bad'), 'a cut answer never looks whole');
  assert.ok(service.lines.some((line) => line.includes('answer cut')));
});

test('a defect reveals nothing to the client except the correlation id', async () => {
  await using service = await startService();
  const reply = await service.send('GET', '/defect', { headers: { 'x-corr-id': 'find-me' } });
  assertRefusal(reply, 500, 'internal');
  assert.doesNotMatch(reply.text, /secret|TypeError/);
  assert.ok(service.lines.some((line) => line.includes('find-me') && line.includes('a secret in a stack trace')));
  await assertCounted(service, 'rejected_total{reason="internal"}');
});

test('a request over its budget gets 504, and headers can only shorten the budget', async () => {
  await using service = await startService([], { request_deadline_ms: 100 });
  assertRefusal(await service.send('GET', '/inline/5000'), 504, 'timeout');
  await assertCounted(service, 'io_timeouts_total{op="handler"}');
  const timed = await service.send('GET', '/slow/5000', { headers: { 'request-timeout': '0.05' } });
  assertRefusal(timed, 504, 'timeout');
  const deadline = String(Date.now() + 50);
  assertRefusal(await service.send('GET', '/slow/5000', { headers: { deadline } }), 504, 'timeout');
  await assertCounted(service, 'io_timeouts_total{op="slow"}', 2);
  const longer = await service.send('GET', '/inline/5000', { headers: { 'request-timeout': '60' } });
  assertRefusal(longer, 504, 'timeout');
});
