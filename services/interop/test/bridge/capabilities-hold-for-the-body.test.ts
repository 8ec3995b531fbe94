/** Every caveat of a client's capability holds at `/put`: refused with a reason from the closed set, and nothing is stored. */
import assert from 'node:assert/strict';
import { hash } from 'node:crypto';
import { describe, test } from 'node:test';
import { inspectToken } from '@ron/auth';
import { bytesOf, eventually, MIB } from '@ron/testkit';
import { addressOf, send, type Reply } from '@ron/testkit/service';
import { fakeStorage, startBridge, type Bridged } from './support.ts';

const SMALL = bytesOf(100, 7);
const LARGE = bytesOf(2 * MIB, 8);
const sha256 = (bytes: Uint8Array): string => `sha256:${hash('sha256', bytes, 'hex')}`;

function assertReason(reply: Reply, status: number, reason: string | undefined): void {
  assert.deepEqual([reply.status, reply.headers['x-reason']], [status, reason], reply.text);
}

async function assertStored(bridge: Bridged, body: Uint8Array, isStored: boolean): Promise<void> {
  assert.equal(await bridge.holds(body), isStored);
}

describe('caveats at put', () => {
  const now_ms = Date.now();
  type Case = readonly [caveat: (body: Uint8Array) => string, refused: readonly [number, string] | undefined];
  const cases: Readonly<Record<string, Case>> = {
    'the scope': [() => 'scopes in interop:put', undefined],
    'another scope': [() => 'scopes in interop:get', [403, 'SCOPE_MISMATCH']],
    'a later expiry': [() => `expires < ${now_ms + 600_000}`, undefined],
    'an expiry in the past': [() => `expires < ${now_ms - 1}`, [401, 'EXPIRED_TOKEN']],
    'sent, later': [() => `sent < ${now_ms + 600_000}`, undefined],
    'sent, in the past': [() => `sent < ${now_ms - 1}`, [401, 'EXPIRED_TOKEN']],
    'the network': [() => 'ip in 127.0.0.0/8', undefined],
    'another network': [() => 'ip in 10.0.0.0/8', [403, 'SCOPE_MISMATCH']],
    'the address': [(body) => `address ^= ${addressOf(body)}`, undefined],
    'a prefix of the address': [(body) => `address ^= ${addressOf(body).slice(0, 6)}`, undefined],
    'another address': [() => `address ^= b3:${'0'.repeat(64)}`, [403, 'SCOPE_MISMATCH']],
    'enough bytes': [(body) => `bytes <= ${body.length}`, undefined],
    'a byte less': [(body) => `bytes <= ${body.length - 1}`, [403, 'SCOPE_MISMATCH']],
    'the body by SHA-256': [(body) => `body = ${sha256(body)}`, undefined],
    'the body by BLAKE3': [(body) => `body = ${addressOf(body)}`, undefined],
    'another body by SHA-256': [() => `body = ${sha256(Buffer.from('x'))}`, [403, 'SCOPE_MISMATCH']],
    'another body by BLAKE3': [() => `body = ${addressOf(Buffer.from('x'))}`, [403, 'SCOPE_MISMATCH']],
    'a tenant': [() => 'tenant = acme', [403, 'SCOPE_MISMATCH']],
    'a name': [() => 'name ^= a', [403, 'SCOPE_MISMATCH']],
    'a label': [() => 'label ^= a', [403, 'SCOPE_MISMATCH']],
    'the audience again': [() => 'audience = interop', undefined],
    'another audience': [() => 'audience = storage', [401, 'BAD_ORIGIN']],
  };

  for (const [size, original] of Object.entries({ small: SMALL, large: LARGE })) {
    test(`each caveat, for a ${size} body, plain and chunked`, async (t) => {
      const bridge = await startBridge(t);
      for (const [at, [name, [caveat, refused]]] of Object.entries(cases).entries()) {
        for (const chunked of [false, true]) {
          const body = Buffer.from(original);
          body.writeUInt16LE(2 * at + Number(chunked) + 1);
          const token = await bridge.client([caveat(body)]);
          const headers = chunked ? { 'transfer-encoding': 'chunked' } : {};
          const reply = await bridge.put(body, { token, headers });
          if (refused === undefined) assert.equal(reply.status, 201, `${name}: ${reply.text}`);
          else assertReason(reply, ...refused);
          await assertStored(bridge, body, refused === undefined);
        }
      }
    });
  }

  test('a rate is counted once for each request', async (t) => {
    const bridge = await startBridge(t);
    const token = await bridge.client(['rate <= 2/m']);
    for (const body of ['a', 'b']) assert.equal((await bridge.put(body, { token })).status, 201);
    assertReason(await bridge.put('c', { token }), 429, 'RATE_LIMIT');
    await assertStored(bridge, Buffer.from('c'), false);
  });

  test('no capability, a forged one and one for another service are refused', async (t) => {
    const bridge = await startBridge(t);
    const good = await bridge.client();
    const forged = `${good.slice(0, -2)}${good.endsWith('AA') ? 'BB' : 'AA'}`;
    const other = await bridge.client([], { audience: 'storage', scopes: ['storage:put'] });
    for (const token of [forged, other, 'garbage']) assertReason(await bridge.put('x', { token }), 401, 'BAD_ORIGIN');
    assertReason(await bridge.send('POST', '/put', { body: 'x' }), 401, 'BAD_ORIGIN');
    await assertStored(bridge, Buffer.from('x'), false);
  });

  test('a revocation of the subject, the capability or its issuer acts at once at passport and within 2 s at interop', async (t) => {
    const bridge = await startBridge(t);
    const issuer = 'I'.repeat(22);
    const revocations = [{ subject: 'alice' }, { capability_id: issuer }] as const;
    for (const [at, revocation] of revocations.entries()) {
      // The revocation of a subject also acts on capabilities of the next minute.
      const token = await bridge.client([], { chain: [issuer], subject: ['alice', 'bob'][at]! });
      assert.equal((await bridge.put(`good ${at}`, { token })).status, 201);
      const reply = await bridge.ask('passport', 'POST', '/v1/passport/revoke', revocation);
      assert.equal(reply.status, 200, reply.text);
      // Interop may not know the revocation yet: then passport refuses the exchange.
      const body = `bad ${at}`;
      assertReason(await bridge.put(body, { token }), 401, 'EXPIRED_TOKEN');
      await assertStored(bridge, Buffer.from(body), false);
    }
  });

  test('a capability that cannot be exchanged is refused, not forwarded', async (t) => {
    const bridge = await startBridge(t);
    const token = await bridge.client([], { chain: ['A', 'B', 'C', 'D'].map((each) => each.repeat(22)) });
    assertReason(await bridge.put('x', { token }), 403, 'SCOPE_MISMATCH');
    await assertStored(bridge, Buffer.from('x'), false);
  });

  test('a captured token of storage stores no other body, nothing larger, and nothing after its minute', async (t) => {
    const fake = await fakeStorage(t, (request, response) => {
      request.resume();
      request.on('end', () => response.writeHead(507, { 'content-length': 0 }).end());
    });
    const bridge = await startBridge(t, { storage_socket: fake.path, with_storage: true });
    const captured = async (body: Uint8Array, caveats: readonly string[] = []): Promise<string> => {
      assert.equal((await bridge.put(body, { token: await bridge.client(caveats) })).status, 507);
      return fake.requests.at(-1)!.headers.authorization!;
    };
    const use = (authorization: string, method: string, path: string, body: Uint8Array): Promise<Reply> =>
      send(bridge.storage.url, method, path, { body, headers: { authorization } });
    const put = (authorization: string, body: Uint8Array): Promise<Reply> =>
      use(authorization, 'PUT', `/o/${addressOf(body)}`, body);

    const bound = await captured(SMALL);
    assert.equal((await put(bound, Buffer.from('other'))).status, 403);
    assert.equal((await use(bound, 'PUT', `/o/${addressOf(SMALL)}`, Buffer.from('other'))).status, 409);
    assert.equal((await use(bound, 'POST', '/o', Buffer.from('other'))).status, 403);
    for (const [method, path] of [
      ['PUT', `/o/${addressOf(SMALL)}/pin`],
      ['GET', '/admin/volumes'],
    ] as const)
      assert.equal((await use(bound, method, path, Buffer.alloc(0))).status, 403, path);
    assert.ok(!(await bridge.holds(Buffer.from('other'))));
    assert.equal((await put(bound, SMALL)).status, 201, 'it is good for its body');

    const stream = await captured(LARGE);
    assert.equal((await use(stream, 'POST', '/o', Buffer.concat([LARGE, LARGE]))).status, 403, 'larger');
    assert.equal((await use(stream, 'POST', '/o', LARGE)).status, 201);

    const short = await captured(bytesOf(50), [`expires < ${Date.now() + 1000}`]);
    const { expires_ms } = inspectToken(short.slice(7));
    assert.ok(expires_ms <= Date.now() + 1000, 'never longer than that of the client');
    await eventually('it has expired', () => Date.now() >= expires_ms);
    assert.equal((await put(short, bytesOf(50))).status, 401);
    assert.ok(!(await bridge.holds(bytesOf(50))));
  });
});
