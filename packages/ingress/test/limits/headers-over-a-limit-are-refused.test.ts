/** Each limit on headers is crossed once: status, problem code and metric. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { rawAnswer, startService } from '../support.ts';
import { RawClient } from '@ron/testkit/service';
import { assertCounted, assertRefusal } from './refusals.ts';

test('headers over the size limit get 431', async () => {
  await using service = await startService();
  assertRefusal(
    await service.send('GET', '/greeting', { headers: { 'x-big': 'a'.repeat(17_000) } }),
    431,
    'headers_too_large',
  );
  await assertCounted(service, 'rejected_total{reason="headers_too_large"}');
});

test('headers over the number limit get 431', async () => {
  await using service = await startService();
  const headers = Object.fromEntries(Array.from({ length: 130 }, (_, i) => [`x-${i}`, '1']));
  assertRefusal(await service.send('GET', '/greeting', { headers }), 431, 'headers_too_large');
});

test('headers that are incomplete at the deadline get 408', async () => {
  await using service = await startService([], { header_timeout_ms: 100 });
  const slow = await RawClient.open(service.port);
  slow.write('GET /greeting HTTP/1.1\r\nHost: localhost\r\n');
  const { status, problem } = rawAnswer(await slow.rest());
  assert.equal(status, 408);
  assert.equal(problem?.['code'], 'request_timeout');
  await assertCounted(service, 'io_timeouts_total{op="header"}');
});

test('a request target over the length limit gets 414', async () => {
  await using service = await startService();
  assertRefusal(await service.send('GET', `/notes/${'a'.repeat(9000)}`), 414, 'uri_too_long');
  assertRefusal(await service.send('GET', `/notes/${'a'.repeat(1100)}`), 414, 'uri_too_long');
  await assertCounted(service, 'rejected_total{reason="uri_too_long"}', 2);
});

test('an idle connection is closed at its timeout without an answer', async () => {
  await using service = await startService([], { idle_timeout_ms: 100 });
  const idle = await RawClient.open(service.port);
  idle.write('GET /greeting HTTP/1.1\r\nHost: localhost\r\n\r\n');
  const text = await idle.rest();
  assert.equal(text.match(/HTTP\/1\.1 /g)?.length, 1);
  assert.match(text, /"greeting":"hello"/);
});
