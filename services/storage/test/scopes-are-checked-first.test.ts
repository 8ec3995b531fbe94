/** Who may do what: every route asks for its scope before it reads, queues or changes anything. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { after, before, describe, test } from 'node:test';
import { bytesOf } from '@ron/testkit';
import { addressOf, assertRefusal } from '@ron/testkit/service';
import { ALL_SCOPES, startService, type TestService } from './support.ts';

const BYTES = bytesOf(1000);
const PATH = `/o/${addressOf(BYTES)}`;

interface Guarded {
  readonly method: string;
  readonly path: string;
  readonly scope: (typeof ALL_SCOPES)[number];
  readonly body?: string;
  readonly headers?: Readonly<Record<string, string>>;
}

/** Everything but the reads. */
const GUARDED: readonly Guarded[] = [
  { method: 'PUT', path: PATH, scope: 'storage:put', body: 'x' },
  { method: 'POST', path: '/o', scope: 'storage:put', body: 'x' },
  { method: 'PUT', path: `${PATH}/pin`, scope: 'storage:pin' },
  { method: 'DELETE', path: `${PATH}/pin`, scope: 'storage:pin' },
  { method: 'GET', path: '/admin/volumes', scope: 'storage:admin' },
  { method: 'POST', path: '/admin/volumes/drain?volume=x', scope: 'storage:admin' },
  { method: 'POST', path: '/admin/volumes/undrain?volume=x', scope: 'storage:admin' },
  { method: 'POST', path: '/admin/volumes/lose?volume=x', scope: 'storage:admin' },
  { method: 'POST', path: '/admin/volumes/restore?volume=x', scope: 'storage:admin' },
  { method: 'POST', path: '/admin/volumes/remove?volume=x', scope: 'storage:admin' },
  { method: 'GET', path: '/admin/repair', scope: 'storage:admin' },
  { method: 'POST', path: '/admin/repair', scope: 'storage:admin' },
  { method: 'POST', path: '/admin/scrub', scope: 'storage:admin' },
];
const READS: readonly Guarded[] = [PATH, `${PATH}?proof=bao`, `${PATH}/manifest`].map((path) => ({
  method: 'GET',
  path,
  scope: 'storage:get',
}));

async function assertGuarded(service: TestService, guarded: Guarded): Promise<void> {
  const { method, path, scope, body, headers } = guarded;
  const send = (more: Readonly<Record<string, string>>): ReturnType<TestService['send']> =>
    service.send(method, path, { ...(body !== undefined && { body }), headers: { ...headers, ...more } });
  const bare = await send({});
  assertRefusal(bare, 401, 'unauthorized');
  assert.match(bare.headers['www-authenticate']!, /^Bearer/);
  assertRefusal(await send({ authorization: 'Bearer nonsense' }), 401, 'unauthorized');
  const others = ALL_SCOPES.filter((other) => other !== scope);
  assertRefusal(await send(await service.allow({ scopes: others })), 403, 'forbidden');
  const allowed = await send(await service.allow({ scopes: [scope] }));
  assert.ok(allowed.status !== 401 && allowed.status !== 403, `${allowed.status} ${allowed.text}`);
}

describe('scopes', () => {
  let open: TestService;
  let closed: TestService;
  before(async () => {
    open = await startService();
    closed = await startService({ flags: ['--auth.reads=true'] });
    for (const service of [open, closed]) await service.put(BYTES);
  });
  after(async () => {
    await open[Symbol.asyncDispose]();
    await closed[Symbol.asyncDispose]();
  });

  for (const guarded of GUARDED) {
    test(`${guarded.method} ${guarded.path.replace(PATH, '/o/ADDR')} needs ${guarded.scope}`, () =>
      assertGuarded(open, guarded));
  }

  test('reads are open by default', async () => {
    for (const { path } of READS) assert.equal((await open.send('GET', path)).status, 200);
  });

  for (const read of READS) {
    test(`with auth.reads, GET ${read.path.replace(PATH, '/o/ADDR')} needs storage:get`, async () => {
      await assertGuarded(closed, read);
      // Once more: by now the object is hot, and the fast path asks as well.
      await assertGuarded(closed, read);
      assert.equal((await closed.send('HEAD', read.path)).status, 401);
    });
  }

  test('health, metrics, version and the document of the routes are open', async () => {
    for (const path of ['/healthz', '/readyz', '/metrics', '/version', '/openapi.json']) {
      assert.equal((await closed.send('GET', path)).status, 200);
    }
  });

  test('a refused write leaves nothing, and its body is not read', async () => {
    const bytes = bytesOf(100, 2);
    const used = open.storage.engine.volume.stats().used_bytes;
    assertRefusal(await open.send('PUT', `/o/${addressOf(bytes)}`, { body: bytes }), 401, 'unauthorized');
    const huge = { 'content-length': '1000000000000' };
    assertRefusal(await open.send('POST', '/o', { headers: huge }), 401, 'unauthorized');
    assert.equal((await open.send('GET', `/o/${addressOf(bytes)}`)).status, 404);
    assert.equal(open.storage.engine.volume.stats().used_bytes, used);
  });

  test('a capability for some addresses: PUT is refused by the path, POST by the bytes, and nothing is kept', async () => {
    const bytes = bytesOf(100, 3);
    const address = addressOf(bytes);
    const own = await open.allow({ caveats: [`address ^= ${address.slice(0, 10)}`] });
    const other = await open.allow({ caveats: [`address ^= b3:${address[3] === '0' ? '1' : '0'}`] });
    assertRefusal(await open.send('PUT', `/o/${address}`, { body: bytes, headers: other }), 403, 'forbidden');
    assertRefusal(await open.send('POST', '/o', { body: bytes, headers: other }), 403, 'forbidden');
    assert.equal((await open.send('GET', `/o/${address}`)).status, 404);
    assert.equal((await open.send('POST', '/o', { body: bytes, headers: own })).status, 201);
    assert.equal((await open.send('PUT', `/o/${address}`, { body: bytes, headers: own })).status, 200);
    const limited = await closed.allow({ caveats: [`address ^= ${address}`] });
    assertRefusal(await closed.send('GET', PATH, { headers: limited }), 403, 'forbidden');
  });

  test('a capability for small bodies', async () => {
    const headers = await open.allow({ caveats: ['bytes <= 10'] });
    assert.equal((await open.send('POST', '/o', { body: '1234567890', headers })).status, 201);
    assertRefusal(await open.send('POST', '/o', { body: '12345678901', headers }), 403, 'forbidden');
    const chunked = { ...headers, 'transfer-encoding': 'chunked' };
    assertRefusal(await open.send('POST', '/o', { body: '12345678901', headers: chunked }), 403, 'forbidden');
    const large = bytesOf(100_000, 5);
    assertRefusal(
      await open.send('PUT', `/o/${addressOf(large)}`, { body: large, headers: chunked }),
      403,
      'forbidden',
    );
    assert.equal((await open.send('GET', `/o/${addressOf(large)}`)).status, 404);
  });

  test('a capability for one body', async () => {
    const hash = createHash('sha256').update('exactly this').digest('hex');
    const headers = await open.allow({ caveats: [`body = sha256:${hash}`] });
    assertRefusal(await open.send('POST', '/o', { body: 'exactly that', headers }), 403, 'forbidden');
    assert.equal((await open.send('POST', '/o', { body: 'exactly this', headers })).status, 201);
    assert.equal((await open.send('GET', `/o/${addressOf(Buffer.from('exactly that'))}`)).status, 404);
  });
});
