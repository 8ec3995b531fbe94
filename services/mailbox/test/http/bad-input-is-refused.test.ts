/** Invalid requests, accidental or malicious: each gets a clear problem, nothing of it is stored, and memory stays flat. */
import assert from 'node:assert/strict';
import { Agent } from 'node:http';
import { after, afterEach, before, suite, test } from 'node:test';
import { gzipSync } from 'node:zlib';
import fc from 'fast-check';
import { BATCH_MEDIA_TYPE, encodeBatch, MAILBOX_LIMITS } from '@ron/proto';
import { assertRefusal, type Reply } from '@ron/testkit/service';
import { AMNESIA, startService, type TestMailbox } from '../support.ts';

const numRuns = Number(process.env['RON_FUZZ_RUNS'] ?? 60);
const MIB = 1024 * 1024;
const JSON_TYPE = { 'content-type': 'application/json' };
const BATCH = { 'content-type': BATCH_MEDIA_TYPE };
const base = '/v1/mailbox';

suite('bad input', () => {
  let mailbox: TestMailbox;
  let allowed: Record<string, string>;
  const agent = new Agent({ keepAlive: true, maxSockets: 4 });
  before(async () => {
    mailbox = await startService({ flags: AMNESIA });
    allowed = { ...(await mailbox.allow()) };
  });
  after(async () => {
    agent.destroy();
    await mailbox[Symbol.asyncDispose]();
  });
  afterEach(async () => {
    const { topics } = (await mailbox.call('GET', base)).json;
    assert.deepEqual(topics, [], 'nothing was stored');
  });
  const post = (path: string, body: string | Uint8Array | undefined, headers: object = JSON_TYPE): Promise<Reply> =>
    mailbox.send('POST', `${base}${path}`, {
      headers: { ...allowed, ...headers },
      ...(body !== undefined && { body }),
      agent,
    });
  const postJson = (path: string, body: unknown): Promise<Reply> => post(path, JSON.stringify(body));
  const framed = (...items: readonly { head: object; payload?: Uint8Array }[]): Buffer =>
    Buffer.concat(encodeBatch(items.map(({ head, payload }) => ({ head, payload: payload ?? new Uint8Array(0) }))));

  /** Fields of a message that are refused, in both forms. */
  const BAD_FIELDS: Readonly<Record<string, object>> = {
    'no topic': { topic: undefined },
    'a topic of another type': { topic: 7 },
    'a topic in upper case': { topic: 'Jobs' },
    'the reserved topic': { topic: 'send' },
    'a long topic': { topic: 'x'.repeat(65) },
    'an id that is not a ULID': { id: 'abc' },
    'an id in lower case': { id: '01j9zk3q7bc4d8wz1v00a7k2m4' },
    'an empty key': { key: '' },
    'a long key': { key: 'x'.repeat(257) },
    'a key of 258 bytes': { key: 'é'.repeat(129) },
    'a key with half a character': { key: 'a\ud800' },
    'an empty idempotency key': { idempotency_key: '' },
    'an idempotency key of 258 bytes': { idempotency_key: 'é'.repeat(129) },
    'an idempotency key with half a character': { idempotency_key: '\udc00' },
    'a negative delay': { delay_ms: -1 },
    'a delay beyond a day': { delay_ms: MAILBOX_LIMITS.delay_ms + 1 },
    'a fractional delay': { delay_ms: 1.5 },
    'a huge delay': { delay_ms: 1e300 },
    'a delay of another type': { delay_ms: '5' },
    '33 headers': { headers: Object.fromEntries(Array.from({ length: 33 }, (_, index) => [`h${index}`, ''])) },
    'headers of 8 KiB and a byte': { headers: { h: 'x'.repeat(8192) } },
    'a header name in upper case': { headers: { Host: 'x' } },
    'a header name with a space': { headers: { 'a b': 'x' } },
    'an empty header name': { headers: { '': 'x' } },
    'a header value with a line feed': { headers: { a: 'x\ny' } },
    'a header value with a null': { headers: { a: '\u0000' } },
    'a header value with half a character': { headers: { a: '\udfff' } },
    'a header value of another type': { headers: { a: 1 } },
    'headers of another type': { headers: ['a'] },
    'an unknown field': { priority: 1 },
    'a field of the answer': { seq: 1 },
  };

  for (const [what, fields] of Object.entries(BAD_FIELDS)) {
    test(`${what}: refused in both forms, with the index of the message, and the good ones are not stored`, async () => {
      const good = { topic: 'good' };
      const bad = { topic: 'good', ...fields };
      const messages = [good, bad, good].map((message) => ({ ...message, payload: '' }));
      const replies = [
        await postJson('/send', { messages }),
        await post('/send', framed({ head: good }, { head: bad }, { head: good }), BATCH),
      ];
      for (const reply of replies) {
        assertRefusal(reply, 400, 'validation');
        assert.match(reply.problem!.detail, /messages\/1/, reply.text);
      }
    });
  }

  test('prototypes cannot be reached through a body, a head or headers', async () => {
    const bodies = [
      '{"messages":[{"topic":"a","payload":"","__proto__":{"x":1}}]}',
      '{"messages":[{"topic":"a","payload":"","headers":{"__proto__":"x"}}]}',
      '{"messages":[{"topic":"a","payload":"","headers":{"\\u005f_proto__":"x"}}]}',
    ];
    for (const body of bodies) assert.equal((await post('/send', body)).status, 400, body);
    for (const head of ['{"topic":"a","__proto__":{"x":1}}', '{"topic":"a","headers":{"__proto__":"x"}}']) {
      const lengths = Buffer.alloc(8);
      lengths.writeUInt32BE(head.length, 0);
      assertRefusal(
        await post('/send', Buffer.concat([Buffer.from('RONB'), lengths, Buffer.from(head)]), BATCH),
        400,
        'validation',
      );
    }
  });

  test('bodies of other shapes are refused', async () => {
    const shapes = [{}, { messages: [] }, { messages: {} }, { messages: [1] }, { messages: [null] }, [], 'x', 7, null];
    for (const shape of shapes) assert.equal((await postJson('/send', shape)).status, 400, JSON.stringify(shape));
    const more = { messages: [{ topic: 'a', payload: '' }], more: 1 };
    assertRefusal(await postJson('/send', more), 400, 'validation');
    for (const text of ['', '{', '{"messages":[]}x', '\u0000', '['.repeat(100_000)])
      assert.equal((await post('/send', text)).status, 400, text.slice(0, 20));
    for (const payload of ['%', 'a', 'ab', 'abc', 'YQ', 'YQ==x', 'YR==', '-_-_', 7, null, undefined])
      assert.equal((await postJson('/send', { messages: [{ topic: 'a', payload }] })).status, 400, String(payload));
  });

  test('batches that are cut, oversized or something else are refused', async () => {
    const whole = framed({ head: { topic: 'a' }, payload: Buffer.from('xyz') });
    for (let cut = 0; cut < whole.length; cut += 1)
      assert.equal((await post('/send', whole.subarray(0, cut), BATCH)).status, 400, `cut at ${cut}`);
    const huge = Buffer.from(whole);
    huge.writeUInt32BE(0xffff_ffff, 8);
    for (const body of [
      huge,
      Buffer.from('RONB'),
      Buffer.concat([whole, Buffer.from('x')]),
      Buffer.from('{"messages":[]}'),
    ])
      assertRefusal(await post('/send', body, BATCH), 400, 'validation');
  });

  test('one message too many, one byte too many', async () => {
    const messages = Array.from({ length: 129 }, () => ({ topic: 'a', payload: '' }));
    assertRefusal(await postJson('/send', { messages }), 400, 'validation');
    const heads = Array.from({ length: 129 }, () => ({ head: { topic: 'a' } }));
    assertRefusal(await post('/send', framed(...heads), BATCH), 400, 'validation');
    const large = Buffer.alloc(MIB + 1);
    const small = { topic: 'a', payload: '' };
    for (const reply of [
      await post('/send', framed({ head: { topic: 'a' } }, { head: { topic: 'a' }, payload: large }), BATCH),
      await postJson('/send', { messages: [small, { topic: 'a', payload: large.toString('base64') }] }),
    ]) {
      assertRefusal(reply, 413, 'payload_too_large');
      assert.equal(reply.problem?.detail, `messages/1/payload is larger than ${MIB} bytes`);
    }
    assertRefusal(await post('/a', large, {}), 413, 'payload_too_large');
    assertRefusal(await post('/send', Buffer.alloc(2 * MIB + 1), BATCH), 413, 'payload_too_large');
    assertRefusal(await post('/send', Buffer.alloc(2 * MIB + 1, ' '), JSON_TYPE), 413, 'payload_too_large');
    for (const path of ['/a/ack', '/a/nack', '/a/receive', '/a/dlq/replay'])
      assertRefusal(await post(path, Buffer.alloc(128 * 1024 + 1, ' '), JSON_TYPE), 413, 'payload_too_large');
  });

  test('compressed bombs are cut at the limit of the route', async () => {
    const coded = { 'content-encoding': 'gzip' };
    // Below the ratio of the listener: only the limit of the route refuses it.
    const mixed = Buffer.alloc(4 * MIB);
    for (let at = 0; at < mixed.length; at += 16) mixed.writeUInt16LE((at * 2654435761) & 0xffff, at);
    const packed = gzipSync(mixed, { level: 1 });
    assert.ok(mixed.length / packed.length < 10 && packed.length < MIB, `${packed.length}`);
    const zeros = gzipSync(Buffer.alloc(32 * MIB), { level: 1 });
    const before_bytes = process.memoryUsage().rss;
    for (const [path, type] of [
      ['/send', BATCH],
      ['/send', JSON_TYPE],
    ] as const) {
      assertRefusal(await post(path, packed, { ...type, ...coded }), 413, 'decompress_cap');
      assertRefusal(await post(path, zeros, { ...type, ...coded }), 413, 'decompress_cap');
    }
    assert.ok(process.memoryUsage().rss - before_bytes < 192 * MIB, 'memory stays flat');
    assert.equal((await post('/send', Buffer.from('x'), { ...BATCH, 'content-encoding': 'gzip' })).status, 400);
    assertRefusal(
      await post('/send', Buffer.from('x'), { ...BATCH, 'content-encoding': 'rot13' }),
      415,
      'unsupported_media',
    );
  });

  test('a single message with a content coding gets 415: its body is stored as it was sent', async () => {
    for (const coding of ['gzip', 'GZIP', 'br', 'rot13', 'identity, gzip'])
      assertRefusal(
        await post('/a', gzipSync(Buffer.from('x')), { 'content-encoding': coding }),
        415,
        'unsupported_media',
      );
  });

  test('a body with another media type, or without one, gets 415', async () => {
    for (const headers of [
      {},
      { 'content-type': 'text/plain' },
      { 'content-type': 'multipart/form-data; boundary=x' },
    ]) {
      assertRefusal(await post('/send', '{"messages":[]}', headers), 415, 'unsupported_media');
      assertRefusal(await post('/a/receive', '{}', headers), 415, 'unsupported_media');
      assertRefusal(await post('/a/ack', '{"tokens":["x"]}', headers), 415, 'unsupported_media');
    }
    assertRefusal(await post('/a/receive', 'RONB', BATCH), 415, 'unsupported_media');
  });

  test('headers of a single message are checked', async () => {
    const cases: [string, string][] = [
      ['Idempotency-Key', 'x'.repeat(257)],
      ['Idempotency-Key', 'é'],
      ['Ron-Key', 'x'.repeat(257)],
      ['Ron-Key', 'é'],
      ['Ron-Delay', '-1'],
      ['Ron-Delay', '86400.001'],
      ['Ron-Delay', '1e3'],
      ['Ron-Delay', '0x10'],
      ['Ron-Delay', '5s'],
      ['Ron-Delay', '1.0001'],
      ['Ron-Delay', 'Infinity'],
      ['Content-Type', `text/plain; x=${'y'.repeat(8192)}`],
    ];
    for (const [name, value] of cases) {
      const reply = await post('/a', 'x', { [name]: value });
      assertRefusal(reply, 400, 'validation');
      assert.match(reply.problem!.detail, name === 'Content-Type' ? /headers have more than/ : new RegExp(name));
    }
  });

  test('numbers out of range, unknown fields and other types are refused on every route', async () => {
    const cases: [string, unknown][] = [
      ...[0, 129, 1.5, '1', -1, null, 1e300].map((max): [string, unknown] => ['/a/receive', { max }]),
      ...[999, 43_200_001, '30s', 0].map((visibility_ms): [string, unknown] => ['/a/receive', { visibility_ms }]),
      ...[-1, 20_001, 1e9, '1', 0.5].map((wait_ms): [string, unknown] => ['/a/receive', { wait_ms }]),
      ...[0, 8 * MIB + 1, -1, '1'].map((bytes_max): [string, unknown] => ['/a/receive', { bytes_max }]),
      ['/a/receive', { more: 1 }],
      ['/a/receive', []],
      ['/a/receive', 7],
      ...['ack', 'nack', 'extend'].flatMap((op): [string, unknown][] => [
        [`/a/${op}`, {}],
        [`/a/${op}`, { tokens: [] }],
        [`/a/${op}`, { tokens: 'x' }],
        [`/a/${op}`, { tokens: [1] }],
        [`/a/${op}`, { tokens: [null] }],
        [`/a/${op}`, { tokens: Array.from({ length: 129 }, () => 'x') }],
        [`/a/${op}`, { tokens: ['x'.repeat(129)] }],
        [`/a/${op}`, { tokens: ['x'], more: 1 }],
      ]),
      ['/a/nack', { tokens: ['x'], delay_ms: -1 }],
      ['/a/nack', { tokens: ['x'], delay_ms: MAILBOX_LIMITS.delay_ms + 1 }],
      ['/a/nack', { tokens: ['x'], error: 1 }],
      ['/a/nack', { tokens: ['x'], dead: 'yes' }],
      ['/a/extend', { tokens: ['x'], visibility_ms: 999 }],
      ['/a/extend', { tokens: ['x'], visibility_ms: 43_200_001 }],
      ['/a/dlq/replay', { seqs: [] }],
      ['/a/dlq/replay', { seqs: [-1] }],
      ['/a/dlq/replay', { seqs: Array.from({ length: 129 }, (_, seq) => seq) }],
      ['/a/dlq/replay', { limit: 0 }],
      ['/a/dlq/replay', { limit: 129 }],
    ];
    for (const [path, body] of cases) {
      const reply = await postJson(path, body);
      assertRefusal(reply, 400, 'validation');
    }
  });

  test('policies out of range and queries out of range are refused', async () => {
    const policies: object[] = [
      { max_messages: 0 },
      { max_messages: 16_000_001 },
      { max_bytes: 1023 },
      { max_age_ms: 999 },
      { max_deliveries: 0 },
      { max_deliveries: 1001 },
      { window_ms: 999 },
      { window_ms: 7 * 86_400_000 + 1 },
      { dead_max_age_ms: 0 },
      { dead_max_messages: 0 },
      { dead_max_bytes: 0 },
      { max_messages: null },
      { more: 1 },
    ];
    for (const policy of policies) assertRefusal(await mailbox.call('PUT', `${base}/a`, policy), 400, 'validation');
    const queries = [
      'GET /a/dlq?limit=0',
      'GET /a/dlq?limit=129',
      'GET /a/dlq?limit=1&limit=2',
      'GET /a/dlq?after=-1',
      'GET /a/dlq?after=1e3',
      'GET /a/dlq?after=99999999999999999',
      'GET /a/dlq?more=1',
      'GET /a/peek?limit=0',
      'GET /a/peek?limit=129',
      'GET /a/peek?limit=01',
      'DELETE /a/dlq?seqs=',
      'DELETE /a/dlq?seqs=1,',
      'DELETE /a/dlq?seqs=1,,2',
      `DELETE /a/dlq?seqs=${Array.from({ length: 129 }, (_, seq) => seq).join(',')}`,
      'DELETE /a/dlq?limit=0',
    ];
    for (const line of queries) {
      const [method, path] = line.split(' ') as [string, string];
      const reply = await mailbox.call(method, `${base}${path}`);
      assertRefusal(reply, 400, 'validation');
    }
  });

  test('routes without a body refuse one', async () => {
    for (const [method, path] of [
      ['GET', '/a'],
      ['GET', ''],
      ['DELETE', '/a/dlq'],
      ['GET', '/a/peek'],
    ] as const) {
      const reply = await mailbox.send(method, `${base}${path}`, {
        headers: { ...allowed, ...JSON_TYPE, 'content-length': '2' },
        body: '{}',
      });
      assertRefusal(reply, 400, 'bad_request');
    }
  });

  test('fuzz: any JSON is accepted by its schema or gets a problem below 500', async () => {
    const paths = ['/send', '/a/ack', '/a/nack', '/a/extend', '/a/receive'];
    const field = fc.constantFrom(
      'messages',
      'tokens',
      'max',
      'wait_ms',
      'visibility_ms',
      'delay_ms',
      'payload',
      'headers',
    );
    const value = fc.oneof(
      fc.jsonValue({ maxDepth: 3 }),
      fc.dictionary(field, fc.jsonValue({ maxDepth: 2 }), { maxKeys: 4 }),
    );
    await fc.assert(
      fc.asyncProperty(fc.constantFrom(...paths), value, async (path, body) => {
        const reply = await postJson(path, body);
        assert.ok(reply.status < 500, `${path} ${JSON.stringify(body)}: ${reply.text}`);
        if (reply.status >= 400) assert.ok(reply.problem !== undefined, reply.text);
      }),
      { numRuns },
    );
  });

  test('fuzz: any bytes as a batch get a problem below 500', async () => {
    const bytes = fc.oneof(
      fc.uint8Array({ maxLength: 200 }),
      fc.uint8Array({ maxLength: 200 }).map((rest) => Buffer.concat([Buffer.from('RONB'), rest])),
      fc.jsonValue({ maxDepth: 2 }).map((head) => {
        const text = Buffer.from(JSON.stringify(head));
        const lengths = Buffer.alloc(8);
        lengths.writeUInt32BE(text.length, 0);
        return Buffer.concat([Buffer.from('RONB'), lengths, text]);
      }),
    );
    await fc.assert(
      fc.asyncProperty(bytes, async (body) => {
        const reply = await post('/send', body, BATCH);
        assertRefusal(reply, 400, 'validation');
      }),
      { numRuns },
    );
  });
});
