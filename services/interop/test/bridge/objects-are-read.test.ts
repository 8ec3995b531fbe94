/** `GET /o/{addr}` answers as storage does, byte for byte, open or with `interop:get`. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { inspectToken } from '@ron/auth';
import { assertSameBytes, bytesOf, eventually, MIB } from '@ron/testkit';
import { addressOf, RawClient, send, type Reply } from '@ron/testkit/service';
import { fakeStorage, startBridge, type Bridged } from './support.ts';

const BODY = bytesOf(3 * MIB + 11, 1);
const ADDRESS = addressOf(BODY);
const GUARDED = ['--auth.reads=true'];
const DOWN = 'DOWNSTREAM_UNAVAILABLE';
/** Of one hop, or different for each answer. */
const OF_ONE_ANSWER = new Set(['date', 'x-corr-id', 'connection', 'keep-alive', 'content-length', 'transfer-encoding']);

function assertReason(reply: Reply, status: number, reason: string | undefined): void {
  assert.deepEqual([reply.status, reply.headers['x-reason']], [status, reason], reply.text);
}

function endToEnd({ headers }: Reply): Record<string, unknown> {
  return Object.fromEntries(Object.entries(headers).filter(([name]) => !OF_ONE_ANSWER.has(name)));
}

async function store(bridge: Bridged, body: Uint8Array): Promise<void> {
  assert.equal((await bridge.put(body, { headers: { 'content-type': 'text/plain' } })).status, 201);
}

describe('objects', () => {
  const requests: readonly [method: string, path: string, headers?: Readonly<Record<string, string>>][] = [
    ['GET', `/o/${ADDRESS}`],
    ['HEAD', `/o/${ADDRESS}`],
    ['GET', `/o/${ADDRESS}`, { range: 'bytes=0-0' }],
    ['GET', `/o/${ADDRESS}`, { range: 'bytes=1000000-2000000' }],
    ['GET', `/o/${ADDRESS}`, { range: 'bytes=-5' }],
    ['GET', `/o/${ADDRESS}`, { range: 'bytes=0-1,5-9' }],
    ['HEAD', `/o/${ADDRESS}`, { range: 'bytes=0-9' }],
    ['GET', `/o/${ADDRESS}`, { range: `bytes=${BODY.length}-` }],
    ['GET', `/o/${ADDRESS}`, { 'if-none-match': `"${ADDRESS}"` }],
    ['GET', `/o/${ADDRESS}`, { 'if-none-match': '*' }],
    ['GET', `/o/${ADDRESS}`, { 'if-match': '"other"' }],
    ['GET', `/o/${ADDRESS}?proof=bao`],
    ['GET', `/o/${ADDRESS}?proof=bao&offset=100000&length=70000`],
    ['GET', `/o/${ADDRESS}?offset=1`],
    ['GET', `/o/${ADDRESS}?proof=other`],
    ['GET', `/o/b3:${'0'.repeat(64)}`],
    ['HEAD', `/o/b3:${'0'.repeat(64)}`],
    ['GET', '/o/b3:1'],
    ['GET', '/o/nonsense'],
  ];
  for (const [mode, flags] of Object.entries({ open: [], guarded: GUARDED })) {
    test(`each answer is that of storage, byte for byte; ${mode}`, async (t) => {
      const bridge = await startBridge(t, { flags });
      await store(bridge, BODY);
      const authorization = `Bearer ${await bridge.client()}`;
      for (const [method, path, headers = {}] of requests) {
        const own = await bridge.send(method, path, { headers: { ...headers, authorization } });
        const expected = await send(bridge.storage.url, method, path, { headers });
        const what = `${method} ${path} ${JSON.stringify(headers)}`;
        assert.equal(own.status, expected.status, what);
        if (expected.problem !== undefined) {
          assert.equal(own.problem?.code, expected.problem.code, what);
          continue;
        }
        assert.deepEqual(endToEnd(own), endToEnd(expected), what);
        assert.equal(own.headers['content-length'], expected.headers['content-length'], what);
        assertSameBytes(own.body, expected.body, what);
      }
    });
  }

  test('without a capability of the client storage gets none, and no cookie', async (t) => {
    const fake = await fakeStorage(t, (_, response) => response.writeHead(200, { 'content-length': 2 }).end('ok'));
    const bridge = await startBridge(t, { storage_socket: fake.path });
    const headers = { authorization: `Bearer ${await bridge.client()}`, cookie: 'a=b', 'x-forwarded-for': '10.0.0.1' };
    assert.equal((await bridge.send('GET', `/o/${ADDRESS}`, { headers })).text, 'ok');
    const got = fake.requests[0]!.headers;
    assert.deepEqual([got.authorization, got.cookie, got['x-forwarded-for']], [undefined, undefined, undefined]);
  });

  test('with auth.reads storage gets a token for one object, and the same client gets it once a minute', async (t) => {
    const fake = await fakeStorage(t, (_, response) => response.writeHead(200, { 'content-length': 2 }).end('ok'));
    const bridge = await startBridge(t, { storage_socket: fake.path, flags: GUARDED });
    const [alice, bob] = [await bridge.client(), await bridge.client(['ip in 127.0.0.0/8'])];
    const read = async (token: string, address: string): Promise<string> => {
      const reply = await bridge.send('GET', `/o/${address}`, { headers: { authorization: `Bearer ${token}` } });
      assert.equal(reply.status, 200, reply.text);
      return fake.requests.at(-1)!.headers.authorization!.slice(7);
    };
    const other = `b3:${'1'.repeat(64)}`;
    const first = await read(alice, ADDRESS);
    const { audience, scopes, texts } = inspectToken(first);
    assert.deepEqual([audience, scopes, texts.slice(3)], ['storage', ['storage:get'], [`address ^= ${ADDRESS}`]]);
    assert.equal(await read(alice, ADDRESS), first);
    assert.notEqual(await read(alice, other), first);
    assert.notEqual(await read(bob, ADDRESS), first);
    const many = await Promise.all(
      Array.from({ length: 20 }, () =>
        bridge.send('GET', `/o/${other}`, { headers: { authorization: `Bearer ${bob}` } }),
      ),
    );
    assert.ok(many.every(({ status }) => status === 200));
    assert.equal(await bridge.metric('rejected_total{reason="BUSY"}'), 0);
    const tokens = new Set(fake.requests.slice(-20).map(({ headers }) => headers.authorization));
    assert.equal(tokens.size, 1, 'concurrent readers share one exchange');
  });

  test('with auth.reads each refusal has its reason', async (t) => {
    const bridge = await startBridge(t, { flags: GUARDED, storage_flags: GUARDED });
    await store(bridge, BODY);
    const read = async (caveats: readonly string[], init = {}): Promise<Reply> => {
      const headers = { authorization: `Bearer ${await bridge.client(caveats, init)}` };
      return await bridge.send('GET', `/o/${ADDRESS}`, { headers });
    };
    const good = [
      [],
      [`address ^= ${ADDRESS}`],
      ['ip in 127.0.0.1'],
      ['rate <= 5/s'],
      ['bytes <= 0'],
      [`expires < ${Date.now() + 60_000}`],
    ];
    for (const caveats of good) assertSameBytes((await read(caveats)).body, BODY, String(caveats));
    assertReason(await bridge.send('GET', `/o/${ADDRESS}`), 401, 'BAD_ORIGIN');
    assertReason(await read(['scopes in interop:put']), 403, 'SCOPE_MISMATCH');
    assertReason(await read([`address ^= b3:${'0'.repeat(64)}`]), 403, 'SCOPE_MISMATCH');
    assertReason(await read(['ip in 10.0.0.0/8']), 403, 'SCOPE_MISMATCH');
    assertReason(await read(['tenant = acme']), 403, 'SCOPE_MISMATCH');
    assertReason(await read([`expires < ${Date.now() - 1}`]), 401, 'EXPIRED_TOKEN');
    assertReason(await read([], { audience: 'storage', scopes: ['storage:get'] }), 401, 'BAD_ORIGIN');
  });

  test('a revocation ends reads with a kept token within 2 s', async (t) => {
    const bridge = await startBridge(t, { flags: GUARDED, storage_flags: GUARDED });
    await store(bridge, BODY);
    const headers = { authorization: `Bearer ${await bridge.client([], { subject: 'bob' })}` };
    const read = (): Promise<Reply> => bridge.send('HEAD', `/o/${ADDRESS}`, { headers });
    assert.equal((await read()).status, 200);
    assert.equal((await bridge.ask('passport', 'POST', '/v1/passport/revoke', { subject: 'bob' })).status, 200);
    const revoked_ms = performance.now();
    await eventually('reads are refused', async () => (await read()).status === 401);
    assert.ok(performance.now() - revoked_ms < 2500);
    assertReason(await read(), 401, 'EXPIRED_TOKEN');
  });

  test('[interop I-3] one address has half of the forwarded reads, and each refusal is counted', async (t) => {
    const fake = await fakeStorage(t, () => undefined);
    const bridge = await startBridge(t, { storage_socket: fake.path });
    const reads = Array.from({ length: 140 }, () => bridge.send('GET', `/o/${ADDRESS}`));
    const replies = await Promise.all(reads);
    const refused = replies.filter(({ status }) => status === 429);
    assert.deepEqual([replies.length - refused.length, fake.requests.length], [128, 128]);
    for (const each of refused) assertReason(each, 429, 'BUSY');
    assert.equal(await bridge.metric('busy_rejections_total{endpoint="forwarded_reads"}'), refused.length);
  });

  test('failures of storage are 503 or 504 with the reason, and a broken answer is cut', async (t) => {
    const fake = await fakeStorage(t, () => undefined);
    const bridge = await startBridge(t, { storage_socket: fake.path });
    const path = `/o/${ADDRESS}`;
    assertReason(await bridge.send('GET', path), 504, DOWN);
    fake.answer = (_, response) => response.writeHead(401, { 'content-length': 0 }).end();
    const misfit = await bridge.send('GET', path);
    assertReason(misfit, 503, DOWN);
    assert.match(misfit.problem!.detail, /set auth\.reads/);
    fake.answer = (_, response) => response.writeHead(503, { 'content-length': 0, 'retry-after': '7' }).end();
    const busy = await bridge.send('GET', path);
    assertReason(busy, 503, DOWN);
    assert.ok(Number(busy.headers['retry-after']) >= 7);
    fake.answer = (_, response) => {
      response.writeHead(200, { 'content-length': 100 });
      response.write('begun', () => response.destroy());
    };
    await assert.rejects(bridge.send('GET', path));
    await fake.stop();
    assertReason(await bridge.send('GET', path), 503, DOWN);
  });

  test('passport away: open reads go on, guarded ones too for a kept token', async (t) => {
    const bridge = await startBridge(t, { flags: GUARDED });
    await store(bridge, BODY);
    // A capability of the node itself: without passport those of users are refused after a while.
    const token = await bridge.client([], { subject: 'root' });
    const read = (address: string): Promise<Reply> =>
      bridge.send('HEAD', `/o/${address}`, { headers: { authorization: `Bearer ${token}` } });
    assert.equal((await read(ADDRESS)).status, 200);
    await bridge.passport.kill();
    assert.equal((await read(ADDRESS)).status, 200);
    assert.equal((await read(`b3:${'0'.repeat(64)}`)).status, 503);
    assert.equal((await bridge.put('x')).status, 503);
  });

  test('a client that leaves ends the read at storage', async (t) => {
    const fake = await fakeStorage(t, (_, response) => {
      response.writeHead(200, { 'content-length': 64 * MIB });
      response.write(bytesOf(MIB));
    });
    const bridge = await startBridge(t, { storage_socket: fake.path });
    const client = await RawClient.open(bridge.port);
    client.head('GET', `/o/${ADDRESS}`);
    await client.until(/content-length: 67108864/i);
    client.destroy();
    await eventually('the read is over', () => fake.sockets.size === 0);
    assert.equal(bridge.upstreams.storage.problem, undefined);
  });
});
