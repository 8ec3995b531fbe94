/** Each limit is crossed once: status, problem code, Retry-After and metric. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { describe, test } from 'node:test';
import { brotliCompressSync, gzipSync, zstdCompressSync } from 'node:zlib';
import { eventually } from '@ron/testkit';
import { RawClient, type Reply } from '@ron/testkit/service';
import { capability, rawAnswer, startService } from './support.ts';
import type { TestService } from './support.ts';

const MIB = 1024 * 1024;
const JSON_TYPE = { 'content-type': 'application/json' };

/** What every refusal must show. */
function assertRefusal(reply: Reply, status: number, code: string): void {
  assert.equal(reply.status, status, reply.text);
  assert.equal(reply.headers['content-type'], 'application/problem+json');
  assert.equal(reply.problem?.code, code);
  assert.equal(reply.problem?.status, status);
  assert.equal(reply.problem?.corr_id, reply.headers['x-corr-id']);
  const waits = status === 429 || status === 503;
  assert.equal(reply.headers['retry-after'] !== undefined, waits, 'Retry-After exactly on 429 and 503');
  if (waits) assert.match(reply.headers['retry-after']!, /^[1-9]\d*$/);
}

async function assertCounted(service: TestService, series: string, at_least = 1): Promise<void> {
  const count = await service.metric(series);
  assert.ok(count >= at_least, `${series} is ${count}`);
}

describe('load', () => {
  test('requests in flight', async () => {
    await using service = await startService([], { max_inflight: 2, inflight_per_ip_max: 2 });
    const held = [service.send('GET', '/inline/300'), service.send('GET', '/inline/300')];
    await eventually('two in flight', () => service.notes.ingress.admission.inflight === 2);
    assertRefusal(await service.send('GET', '/inline/0'), 429, 'inflight_limit');
    assert.equal((await service.send('GET', '/healthz')).status, 200, 'health never waits behind work');
    assert.equal((await service.send('GET', '/metrics')).status, 200);
    for (const reply of await Promise.all(held)) assert.equal(reply.status, 200);
    assert.equal((await service.send('GET', '/inline/0')).status, 200, 'places are given back');
    await assertCounted(service, 'rejected_total{reason="inflight_limit"}');
  });

  test('a request that waits in a queue holds no in-flight place, and takes one again when its work begins', async () => {
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
    await eventually('all places are free', () => admission.inflight === 0);
  });

  test('requests per second', async () => {
    await using service = await startService([], { rps_limit: 0.1, rps_burst: 2 });
    const replies = await Promise.all([1, 2, 3].map(() => service.send('GET', '/greeting')));
    const refused = replies.filter((reply) => reply.status !== 200);
    assert.equal(refused.length, 1);
    assertRefusal(refused[0]!, 429, 'rate_limited');
    assert.ok(Number(refused[0]!.headers['retry-after']) >= 9, 'as long as the next token takes');
    assert.equal((await service.send('GET', '/readyz')).status, 200);
    await assertCounted(service, 'rejected_total{reason="rate_limited"}');
  });

  test('a full work queue', async () => {
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

  test('all connections', async () => {
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
    await eventually('places are given back', () => service.notes.ingress.admission.connections === 0);
    assert.equal((await service.send('GET', '/greeting')).status, 200);
  });

  test('connections of one address, unless they carry a capability', async () => {
    await using service = await startService([], { connection_limit_per_ip: 2 });
    const held = [await RawClient.open(service.port), await RawClient.open(service.port)];
    await eventually('two connections', () => service.notes.ingress.admission.connections === 2);
    assertRefusal(await service.send('GET', '/greeting'), 429, 'conn_limit');
    await assertCounted(service, 'rejected_total{reason="conn_limit"}');
    const put = await service.send('PUT', '/notes/ours', { body: 'x', headers: capability() });
    assert.equal(put.status, 201, 'one of our own services gets through');
    for (const client of held) client.destroy();
  });

  test('a connection that showed a capability no longer counts for its address', async () => {
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
});

describe('headers', () => {
  test('their size', async () => {
    await using service = await startService();
    assertRefusal(
      await service.send('GET', '/greeting', { headers: { 'x-big': 'a'.repeat(17_000) } }),
      431,
      'headers_too_large',
    );
    await assertCounted(service, 'rejected_total{reason="headers_too_large"}');
  });

  test('their number', async () => {
    await using service = await startService();
    const headers = Object.fromEntries(Array.from({ length: 130 }, (_, i) => [`x-${i}`, '1']));
    assertRefusal(await service.send('GET', '/greeting', { headers }), 431, 'headers_too_large');
  });

  test('their time', async () => {
    await using service = await startService([], { header_timeout_ms: 100 });
    const slow = await RawClient.open(service.port);
    slow.write('GET /greeting HTTP/1.1\r\nHost: localhost\r\n');
    const { status, problem } = rawAnswer(await slow.rest());
    assert.equal(status, 408);
    assert.equal(problem?.['code'], 'request_timeout');
    await assertCounted(service, 'io_timeouts_total{op="header"}');
  });

  test('the request target', async () => {
    await using service = await startService();
    assertRefusal(await service.send('GET', `/notes/${'a'.repeat(9000)}`), 414, 'uri_too_long');
    assertRefusal(await service.send('GET', `/notes/${'a'.repeat(1100)}`), 414, 'uri_too_long');
    await assertCounted(service, 'rejected_total{reason="uri_too_long"}', 2);
  });

  test('an idle connection is closed after its time, without a word', async () => {
    await using service = await startService([], { idle_timeout_ms: 100 });
    const idle = await RawClient.open(service.port);
    idle.write('GET /greeting HTTP/1.1\r\nHost: localhost\r\n\r\n');
    const text = await idle.rest();
    assert.equal(text.match(/HTTP\/1\.1 /g)?.length, 1);
    assert.match(text, /"greeting":"hello"/);
  });
});

describe('bodies', () => {
  const BIG = 'a'.repeat(1024 * 1024 + 1);

  test('a declared length over the cap is refused before the body is read', async () => {
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
    assert.equal(client.error, undefined, 'closed in peace, not reset');
  });

  test('a chunked body is cut at the cap', async () => {
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
    test(`${encoding}: within the ratio it is decoded, beyond it is cut`, async () => {
      await using service = await startService();
      const send = (plain: Buffer): Promise<Reply> =>
        service.send('POST', '/raw', { body: compress(plain), headers: { 'content-encoding': encoding } });
      assert.deepEqual(JSON.parse((await send(Buffer.from('plain'))).text), { bytes: 5 });
      assertRefusal(await send(Buffer.alloc(4 * 1024 * 1024)), 413, 'decompress_cap');
      await assertCounted(service, 'rejected_total{reason="decompress_cap"}');
    });
  }

  test('decoded bytes in all', async () => {
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

  test('an encoding that is not known, and two at once', async () => {
    await using service = await startService();
    for (const encoding of ['deflate', 'gzip, gzip']) {
      const reply = await service.send('POST', '/raw', { body: 'x', headers: { 'content-encoding': encoding } });
      assertRefusal(reply, 415, 'unsupported_media');
    }
  });

  test('JSON: another type, broken, not UTF-8, unknown fields, wrong types, prototype keys', async () => {
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

  test('a buffered body has a total time, however it trickles', async () => {
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

  test('a streamed body that stops is refused; one that keeps coming may take longer than any limit', async () => {
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

  test('a streamed body below the minimum rate is refused, though it never stops', async () => {
    await using service = await startService([], { read_timeout_ms: 150, rate_bytes_per_s_min: 10_000 });
    const client = await RawClient.open(service.port);
    client.write(put(100_000));
    const trickle = setInterval(() => client.write('x'), 20);
    const { status } = rawAnswer(await client.rest());
    clearInterval(trickle);
    assert.equal(status, 408);
  });

  test('a body whose framing breaks is refused at once, whole or streamed', async () => {
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

  test('a worker that does not read is not the fault of the client', async () => {
    await using service = await startService(['--notes.workers=1'], { read_timeout_ms: 100 });
    const slow = service.send('GET', '/slow/500');
    await eventually('the worker is busy', () => service.notes.ingress.admission.inflight === 1);
    const stored = await service.send('PUT', '/notes/late', { body: 'x'.repeat(100_000), headers: capability() });
    assert.equal(stored.status, 201);
    await slow;
  });

  test('the capability caps the body while it is read, before anything is stored', async () => {
    await using service = await startService();
    const headers = capability({ caveats: [{ key: 'bytes', body_bytes_max: 10 }] });
    assertRefusal(await service.send('PUT', '/notes/c', { body: 'x'.repeat(11), headers }), 403, 'forbidden');
    const chunked = { ...headers, 'transfer-encoding': 'chunked' };
    assertRefusal(await service.send('PUT', '/notes/c', { body: 'x'.repeat(11), headers: chunked }), 403, 'forbidden');
    assert.equal((await service.send('GET', '/notes/c')).status, 404, 'nothing was stored');
    assert.equal((await service.send('PUT', '/notes/c', { body: 'x'.repeat(10), headers })).status, 201);
  });

  test('Expect: 100-continue is answered only when the body is wanted', async () => {
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
});

describe('answers', () => {
  test('a client that does not read is cut, and holds one chunk, not the note', async () => {
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

  test('the same from RAM', async () => {
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

  test('small answers from RAM that the client does not read hold one place per connection, and are cut', async (t) => {
    await using service = await startService([], { write_timeout_ms: 200, rate_bytes_per_s_min: MIB });
    await service.send('PUT', '/notes/some', { body: Buffer.alloc(900_000), headers: capability() });
    assert.ok(service.notes.shelf.hot('/notes/some'));
    const { admission } = service.notes.ingress;
    const tryEnter = admission.tryEnter.bind(admission);
    // Places in use after each admitted request. A poll could miss a place, which is returned once the client stalls.
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
    assert.equal(Math.max(...inflight), 1, 'places of one connection');
    await eventually('its place is free', () => service.notes.ingress.admission.inflight === 0);
    const aborted = 'http_requests_total{route="GET /notes/:name",class="aborted"}';
    await eventually('the cut answer is counted', async () => (await service.metric(aborted)) > 0);
    client.destroy();
  });

  test('a source that fails at once is a problem, one that fails later a cut connection', async () => {
    await using service = await startService(['--notes.ram_bytes=0']);
    await service.send('PUT', '/notes/bad', { body: Buffer.alloc(300_000), headers: capability() });
    service.notes.shelf.break_after_chunks = 0;
    assertRefusal(await service.send('GET', '/notes/bad'), 500, 'integrity');
    service.notes.shelf.break_after_chunks = 2;
    await assert.rejects(service.send('GET', '/notes/bad'), 'a cut answer never looks whole');
    assert.ok(service.lines.some((line) => line.includes('an answer was cut')));
  });

  test('a defect tells the client nothing but where to find it', async () => {
    await using service = await startService();
    const reply = await service.send('GET', '/defect', { headers: { 'x-corr-id': 'find-me' } });
    assertRefusal(reply, 500, 'internal');
    assert.doesNotMatch(reply.text, /secret|TypeError/);
    assert.ok(service.lines.some((line) => line.includes('find-me') && line.includes('a secret in a stack trace')));
    await assertCounted(service, 'rejected_total{reason="internal"}');
  });

  test('the budget of a request, and the headers that shorten it', async () => {
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
});

describe('capabilities', () => {
  test('none, a broken one, one without the scope', async () => {
    await using service = await startService();
    const crash = (headers: Record<string, string>): Promise<Reply> =>
      service.send('GET', '/admin/refuse', { headers });
    const none = await crash({});
    assertRefusal(none, 401, 'unauthorized');
    assert.equal(none.headers['www-authenticate'], 'Bearer realm="ron"');
    assertRefusal(await crash({ authorization: 'Bearer nonsense' }), 401, 'unauthorized');
    assertRefusal(await crash(capability({ scopes: ['storage:put'] })), 403, 'forbidden');
    await assertCounted(service, 'rejected_total{reason="unauthorized"}', 2);
    await assertCounted(service, 'rejected_total{reason="forbidden"}');
  });

  test('it is checked before the body is read and before any queue', async () => {
    await using service = await startService(['--notes.workers=1', '--notes.queue=1']);
    const held = [service.send('GET', '/slow/300'), service.send('GET', '/slow/300')];
    await eventually('the queue is full', async () => (await service.metric('queue_depth{queue="work"}')) === 1);
    const client = await RawClient.open(service.port);
    client.write('PUT /notes/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n');
    await client.until(/HTTP\/1\.1 401/);
    client.destroy();
    await Promise.all(held);
  });

  test('what the path acts on is compared with the caveats', async () => {
    await using service = await startService();
    const headers = capability({ caveats: [{ key: 'name', prefix: 'team-' }] });
    assert.equal((await service.send('PUT', '/notes/team-a', { body: 'x', headers })).status, 201);
    assertRefusal(await service.send('PUT', '/notes/other', { body: 'x', headers }), 403, 'forbidden');
  });
});

describe('state', () => {
  test('a closed gate that refuses work, while health still answers', async () => {
    await using service = await startService();
    service.notes.gates.replay.close('replaying the log');
    assertRefusal(await service.send('GET', '/greeting'), 503, 'not_ready');
    assertRefusal(await service.send('GET', '/readyz'), 503, 'not_ready');
    assert.equal((await service.send('GET', '/healthz')).status, 200);
    service.notes.gates.replay.open();
    assert.equal((await service.send('GET', '/greeting')).status, 200);
    await assertCounted(service, 'rejected_total{reason="not_ready"}', 2);
  });

  test('draining', async () => {
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

  test('one connection cannot take all places by pipelining', async () => {
    await using service = await startService();
    const client = await RawClient.open(service.port);
    client.write('GET /inline/100 HTTP/1.1\r\nHost: localhost\r\n\r\n'.repeat(40));
    await client.until(/inflight_limit/);
    client.destroy();
    await once(client.socket, 'close');
    await eventually('everything is given back', () => service.notes.ingress.admission.inflight === 0);
  });
});
