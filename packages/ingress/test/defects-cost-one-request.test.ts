/** A defect of a handler or a key source, or an early disconnect, affects its own request and nothing else. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { connect } from 'node:net';
import { test } from 'node:test';
import { Checker, MemoryKeySource, mint } from '@ron/auth';
import { bytes, createIngress, json, route, type Ingress, type Route } from '@ron/ingress';
import type { AccessCheck } from '@ron/proto';
import { Metrics } from '@ron/telemetry';
import { send } from '@ron/testkit/service';

const base = { scope: null, lane: 'inline', body: 'none', summary: 'For a test.' } as const;
const signal = new AbortController().signal;

async function listen(
  routes: readonly Route[],
  more: { access?: AccessCheck; per_ip?: number } = {},
): Promise<Ingress & { readonly url: string }> {
  const ingress = await createIngress({
    service: 'x',
    version: '0',
    metrics: new Metrics('x'),
    routes,
    config: { sweep_ms: 20, ...(more.per_ip !== undefined && { connection_limit_per_ip: more.per_ip }) },
    ...(more.access && { access: more.access }),
  });
  await ingress.listen();
  return ingress;
}

/** Fails if `run` left a rejection unhandled. */
async function leavesNothingUnhandled(run: () => Promise<void>): Promise<void> {
  const left: unknown[] = [];
  const onLeft = (reason: unknown): void => void left.push(reason);
  process.on('unhandledRejection', onLeft);
  try {
    await run();
    for (let turn = 0; turn < 5; turn++) await new Promise((resolve) => setImmediate(resolve));
  } finally {
    process.off('unhandledRejection', onLeft);
  }
  assert.deepEqual(left, []);
}

test('a budget of 0 and a late failure of a key source or handler leave no rejection unhandled', async () => {
  const later = (): Promise<never> =>
    new Promise((_resolve, reject) => void setTimeout(() => reject(new Error('the key file is gone')), 20));
  await using ingress = await listen(
    [
      route({ ...base, method: 'GET', path: '/guarded', scope: 'storage:get', handler: () => json(200, {}) }),
      route({ ...base, method: 'GET', path: '/slow', handler: later }),
    ],
    { access: { checkHeaders: later } },
  );
  await leavesNothingUnhandled(async () => {
    for (const path of ['/guarded', '/slow']) {
      const headers = { 'request-timeout': '0', authorization: 'Bearer x' };
      assert.equal((await send(ingress.url, 'GET', path, { headers })).status, 504);
    }
    await new Promise((resolve) => setTimeout(resolve, 60));
  });
});

test('a source with invalid headers is a 500 for its client, not a crash', async () => {
  await using ingress = await listen([
    route({
      ...base,
      method: 'GET',
      path: '/snow',
      handler: () =>
        bytes({ size: 1, etag: '"a"', media_type: 'text/☃', ram: [Buffer.from('a')], read: async function* () {} }),
    }),
  ]);
  await leavesNothingUnhandled(async () => {
    assert.equal((await send(ingress.url, 'GET', '/snow')).status, 500);
  });
});

test('a handler that ignores the restrictions of a capability cannot answer', async () => {
  const keys = new MemoryKeySource();
  const tokenFor = async (caveat: string): Promise<Record<string, string>> => {
    const init = { audience: 'storage', scopes: ['storage:put'], ttl_ms: 60_000, caveats: [caveat] } as const;
    return { authorization: `Bearer ${(await mint(keys, init, signal)).token}` };
  };
  const guarded = { ...base, method: 'POST', scope: 'storage:put' } as const;
  await using ingress = await listen(
    [
      route({
        ...guarded,
        path: '/forgets',
        body: 'buffered',
        facts_later: ['tenant'],
        handler: () => json(200, { did: 'it' }),
      }),
      route({
        ...guarded,
        path: '/states',
        body: 'buffered',
        facts_later: ['tenant'],
        handler: (context) => {
          context.actsOn({ tenant: 'acme' });
          return json(200, {});
        },
      }),
      route({ ...guarded, path: '/skims', body: 'stream', handler: () => json(200, { did: 'it' }) }),
    ],
    { access: new Checker({ audience: 'storage', keys }) },
  );
  const ask = async (path: string, caveat: string): Promise<number> =>
    (await send(ingress.url, 'POST', path, { headers: await tokenFor(caveat), body: 'hello' })).status;
  assert.equal(await ask('/forgets', 'tenant = acme'), 403);
  assert.equal(await ask('/states', 'tenant = acme'), 200);
  assert.equal(await ask('/states', 'tenant = other'), 403);
  const right = createHash('sha256').update('hello').digest('hex');
  assert.equal(
    await ask('/skims', `body = sha256:${right}`),
    403,
    'it did not read the body, so the body was not checked',
  );
});

test('an address at its limit gets a few connections on probation, each closed after its first refusal', async () => {
  await using ingress = await listen([route({ ...base, method: 'GET', path: '/', handler: () => json(200, {}) })], {
    per_ip: 2,
  });
  const port = Number(new URL(ingress.url).port);
  const sockets = [];
  for (let index = 0; index < 30; index++) {
    const socket = connect({ port, host: '127.0.0.1' });
    socket.on('error', () => undefined);
    sockets.push(socket);
    await once(socket, 'connect');
  }
  const open = sockets.slice(2, 10);
  await Promise.all(
    open.map(async (socket) => {
      socket.write('GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n');
      const [answer] = (await once(socket, 'data')) as [Buffer];
      assert.match(String(answer), /^HTTP\/1\.1 429 /);
      if (!socket.closed) await once(socket, 'close');
    }),
  );
  assert.ok(ingress.admission.connections <= 2 + 8);
  for (const socket of sockets) socket.destroy();
});
