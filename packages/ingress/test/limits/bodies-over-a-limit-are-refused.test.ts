/** Each limit on bodies is crossed once: status, problem code and metric. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { brotliCompressSync, gzipSync, zstdCompressSync } from 'node:zlib';
import { capability, rawAnswer, startService } from '../support.ts';
import { eventually } from '@ron/testkit';
import { RawClient } from '@ron/testkit/service';
import type { Reply } from '@ron/testkit/service';
import { assertCounted, assertRefusal } from './refusals.ts';

const JSON_TYPE = { 'content-type': 'application/json' };
const BIG = 'a'.repeat(1024 * 1024 + 1);

test('a declared length over the limit is refused before the body is read', async () => {
  await using service = await startService();
  const client = await RawClient.open(service.port);
  client.write(`POST /raw HTTP/1.1\r\nHost: localhost\r\nContent-Length: ${BIG.length}\r\n\r\n`);
  const { status, problem } = rawAnswer(await client.rest());
  assert.equal(status, 413);
  assert.equal(problem?.['code'], 'payload_too_large');
  await assertCounted(service, 'rejected_total{reason="payload_too_large"}');
});

test('a client that is still sending when it is refused can read the refusal', async () => {
  await using service = await startService();
  const client = await RawClient.open(service.port);
  client.write(`POST /raw HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5000000\r\n\r\n${'a'.repeat(300_000)}`);
  await client.until(/"retryable":false}$/);
  client.write('a'.repeat(300_000));
  await client.rest();
  assert.equal(client.error, undefined, 'closed cleanly, not reset');
});

test('a chunked body is refused once it exceeds the limit', async () => {
  await using service = await startService();
  const reply = await service.send('POST', '/raw', { body: BIG, headers: { 'transfer-encoding': 'chunked' } });
  assertRefusal(reply, 413, 'payload_too_large');
  const exact = await service.send('POST', '/raw', {
    body: BIG.slice(1),
    headers: { 'transfer-encoding': 'chunked' },
  });
  assert.deepEqual(JSON.parse(exact.text), { bytes: 1024 * 1024 });
});

for (const [encoding, compress] of Object.entries({
  gzip: gzipSync,
  br: brotliCompressSync,
  zstd: zstdCompressSync,
})) {
  test(`${encoding}: a body within the ratio is decoded, one beyond it is refused`, async () => {
    await using service = await startService();
    const send = (plain: Buffer): Promise<Reply> =>
      service.send('POST', '/raw', { body: compress(plain), headers: { 'content-encoding': encoding } });
    assert.deepEqual(JSON.parse((await send(Buffer.from('plain'))).text), { bytes: 5 });
    assertRefusal(await send(Buffer.alloc(4 * 1024 * 1024)), 413, 'decompress_cap');
    await assertCounted(service, 'rejected_total{reason="decompress_cap"}');
  });
}

test('a body over the limit on decoded bytes is refused', async () => {
  await using service = await startService([], { decompress_max_ratio: 1000, decompress_abs_bytes: 200_000 });
  const headers = { 'content-encoding': 'gzip' };
  assertRefusal(
    await service.send('POST', '/raw', { body: gzipSync(Buffer.alloc(300_000)), headers }),
    413,
    'decompress_cap',
  );
  const fits = await service.send('POST', '/raw', { body: gzipSync(Buffer.alloc(200_000)), headers });
  assert.deepEqual(JSON.parse(fits.text), { bytes: 200_000 });
});

test('an unknown content coding, and two codings at once, are refused', async () => {
  await using service = await startService();
  for (const encoding of ['deflate', 'gzip, gzip']) {
    const reply = await service.send('POST', '/raw', { body: 'x', headers: { 'content-encoding': encoding } });
    assertRefusal(reply, 415, 'unsupported_media');
  }
});

test('JSON of another media type, syntax, encoding or schema is refused, and so are prototype keys', async () => {
  await using service = await startService();
  const post = (body: string | Buffer, headers: Record<string, string> = JSON_TYPE): Promise<Reply> =>
    service.send('POST', '/orders', { body, headers });
  assertRefusal(await post('{"name":"a"}', { 'content-type': 'text/plain' }), 415, 'unsupported_media');
  assertRefusal(await post('{"name":'), 400, 'bad_request');
  assertRefusal(await post(Buffer.from('{"name":"\xff"}', 'latin1')), 400, 'bad_request');
  assertRefusal(await post('{"name":"a","more":1}'), 400, 'validation');
  assertRefusal(await post('{"name":1}'), 400, 'validation');
  assertRefusal(await post('{"name":"a","tags":["12345678901234567"]}'), 400, 'validation');
  assertRefusal(await post('{"name":"a","__proto__":{"x":1}}'), 400, 'bad_request');
  assertRefusal(await post(''), 400, 'validation');
  assert.deepEqual(JSON.parse((await post('{"name":"ä","tags":["b"]}')).text), { name: 'ä', tags: 1 });
  await assertCounted(service, 'rejected_total{reason="validation"}', 4);
});

test('a buffered body that is incomplete at the deadline is refused, even while it trickles in', async () => {
  await using service = await startService([], { read_timeout_ms: 200 });
  const client = await RawClient.open(service.port);
  client.write('POST /raw HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n');
  const trickle = setInterval(() => client.write('x'), 20);
  const { status, problem, head } = rawAnswer(await client.rest());
  clearInterval(trickle);
  assert.equal(status, 408);
  assert.equal(problem?.['code'], 'request_timeout');
  assert.match(head, /^connection: close$/im);
  await assertCounted(service, 'io_timeouts_total{op="read"}');
  assert.equal(service.notes.ingress.admission.inflight, 0);
});

const put = (length: number): string =>
  `PUT /notes/s HTTP/1.1\r\nHost: localhost\r\nAuthorization: ${capability().authorization}\r\nContent-Length: ${length}\r\n\r\n`;

test('a streamed body that stalls is refused; one that keeps coming may take longer than any limit', async () => {
  await using service = await startService([], { read_timeout_ms: 600, rate_bytes_per_s_min: 10 });
  const stalled = await RawClient.open(service.port);
  stalled.write(`${put(1000)}some`);
  const { status, problem } = rawAnswer(await stalled.rest());
  assert.equal(status, 408);
  assert.equal(problem?.['code'], 'request_timeout');
  await assertCounted(service, 'io_timeouts_total{op="read"}');

  const slow = await RawClient.open(service.port);
  slow.write(put(40));
  for (let sent = 0; sent < 40; sent += 4) {
    slow.write('abcd');
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  await slow.until(/201 Created/);
  slow.destroy();
});

test('a streamed body below the minimum rate is refused even if it never stalls', async () => {
  await using service = await startService([], { read_timeout_ms: 150, rate_bytes_per_s_min: 10_000 });
  const client = await RawClient.open(service.port);
  client.write(put(100_000));
  const trickle = setInterval(() => client.write('x'), 20);
  const { status } = rawAnswer(await client.rest());
  clearInterval(trickle);
  assert.equal(status, 408);
});

test('a streamed body that is incomplete at the deadline of the request is a delay of the client, not a timeout', async () => {
  await using service = await startService();
  const client = await RawClient.open(service.port);
  const trickle = setInterval(() => client.write('x'), 20);
  client.write(put(100_000).replace('\r\n\r\n', '\r\nRequest-Timeout: 0.2\r\n\r\n'));
  const { status, problem } = rawAnswer(await client.rest());
  clearInterval(trickle);
  assert.deepEqual([status, problem?.['code']], [408, 'request_timeout']);
});

test('a body with broken framing is refused at once, buffered or streamed', async () => {
  await using service = await startService();
  const chunked = 'Host: localhost\r\nTransfer-Encoding: chunked\r\n';
  for (const head of [
    `POST /raw HTTP/1.1\r\n`,
    `PUT /notes/b HTTP/1.1\r\nAuthorization: ${capability().authorization}\r\n`,
  ]) {
    const client = await RawClient.open(service.port);
    client.write(`${head}${chunked}\r\n3\r\nabc\r\n`);
    await eventually('its body is awaited', () => service.notes.ingress.admission.inflight === 1);
    client.write('no hex\r\n');
    const { status, problem } = rawAnswer(await client.rest());
    assert.equal(status, 400);
    assert.equal(problem?.['code'], 'bad_request');
    assert.equal(service.notes.ingress.admission.inflight, 0);
  }
  assert.equal(await service.metric('rejected_total{reason="bad_request"}'), 2, 'counted once each');
});

test('a client is not cut while the worker does not read its body', async () => {
  await using service = await startService(['--notes.workers=1'], { read_timeout_ms: 100 });
  const slow = service.send('GET', '/slow/500');
  await eventually('the worker is busy', () => service.notes.ingress.admission.inflight === 1);
  const stored = await service.send('PUT', '/notes/late', { body: 'x'.repeat(100_000), headers: capability() });
  assert.equal(stored.status, 201);
  await slow;
});

test('a capability limits the body while it is read, before anything is stored', async () => {
  await using service = await startService();
  const headers = capability({ caveats: [{ key: 'bytes', body_bytes_max: 10 }] });
  assertRefusal(await service.send('PUT', '/notes/c', { body: 'x'.repeat(11), headers }), 403, 'forbidden');
  const chunked = { ...headers, 'transfer-encoding': 'chunked' };
  assertRefusal(await service.send('PUT', '/notes/c', { body: 'x'.repeat(11), headers: chunked }), 403, 'forbidden');
  assert.equal((await service.send('GET', '/notes/c')).status, 404, 'nothing was stored');
  assert.equal((await service.send('PUT', '/notes/c', { body: 'x'.repeat(10), headers })).status, 201);
});

test('Expect: 100-continue is answered only if the body will be read', async () => {
  await using service = await startService();
  const refused = await RawClient.open(service.port);
  refused.write('PUT /notes/e HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n');
  await refused.until(/HTTP\/1\.1 401/);
  assert.doesNotMatch(refused.received, /100 Continue/);
  refused.destroy();
  const wanted = await RawClient.open(service.port);
  wanted.write(put(5).replace('Content-Length', 'Expect: 100-continue\r\nContent-Length'));
  await wanted.until(/100 Continue/);
  wanted.write('hello');
  await wanted.until(/201 Created/);
  wanted.destroy();
});
