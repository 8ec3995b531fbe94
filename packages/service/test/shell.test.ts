import assert from 'node:assert/strict';
import { createServer } from 'node:net';
import { once } from 'node:events';
import { test, type TestContext } from 'node:test';
import { loadConfig } from '@ron/config';
import { Watch } from '@ron/kernel';
import { startService, type StartInit } from '@ron/service';
import { createLog, Metrics } from '@ron/telemetry';
import { schema, type SmallestConfig } from './smallest/config.ts';
import { smallest, type Store } from './smallest/service.ts';

const configOf = (flags: readonly string[] = [], port = 0): SmallestConfig =>
  loadConfig({ schema, flags: [`--server.bind=127.0.0.1:${port}`, ...flags], env: {}, env_prefix: 'RON_INDEX_' });

type Init = Partial<StartInit<SmallestConfig>> & { readonly openStore?: () => Promise<Store> };

/** Starts the smallest service; its log lines go to `lines`. */
async function start(t: TestContext, init: Init = {}, lines: Record<string, unknown>[] = []) {
  const sink = { write: (line: string) => void lines.push(JSON.parse(line) as Record<string, unknown>) };
  const log = createLog({ service: 'index', level: 'debug', sink });
  const service = await startService(smallest, {
    config: configOf(),
    metrics: new Metrics('index'),
    log,
    env: {},
    ...init,
  });
  t.after(() => service.abort());
  return service;
}

const get = (url: string, path: string): Promise<Response> => fetch(new URL(path, url));
/** A store that records when it is closed. */
function watchedStore(): { store: Store; closed: () => number } {
  let closed = 0;
  return { store: { problem: undefined, [Symbol.asyncDispose]: async () => void (closed += 1) }, closed: () => closed };
}

test('the template builds everything that it declares, under the names of its own declaration', async (t) => {
  const service = await start(t);
  assert.equal((await get(service.url, '/greeting')).status, 200);
  service.runtime.deadline('read');
  service.runtime.deadline('write');
  assert.deepEqual(service.runtime.unbuilt(), []);
});

test('health, readiness, metrics, version and OpenAPI come with the shell', async (t) => {
  const service = await start(t);
  for (const path of ['/healthz', '/readyz', '/metrics', '/version', '/openapi.json']) {
    assert.equal((await get(service.url, path)).status, 200, path);
  }
  const version = (await (await get(service.url, '/version')).json()) as Record<string, unknown>;
  assert.equal(version['capability_keys'], 'memory');
});

test('a route with a scope is refused without a capability', async (t) => {
  const service = await start(t);
  assert.equal((await get(service.url, '/secret')).status, 401);
});

test('a gate of the domain closes /readyz with its reason', async (t) => {
  const store = { problem: 'the disk is gone', [Symbol.asyncDispose]: async () => undefined };
  const service = await start(t, { openStore: async () => store });
  const answer = await get(service.url, '/readyz');
  assert.equal(answer.status, 503);
  assert.match(await answer.text(), /the disk is gone/);
});

test('while the domain opens, probes are answered and requests get 503', async (t) => {
  const port = await freePort();
  const opening = Promise.withResolvers<Store>();
  const starting = start(t, {
    config: configOf([], port),
    openStore: () => opening.promise,
  });
  const url = `http://127.0.0.1:${port}`;
  for (;;) {
    const answer = await get(url, '/healthz').catch(() => undefined);
    if (answer?.status === 200) break;
  }
  assert.equal((await get(url, '/greeting')).status, 503);
  opening.resolve(watchedStore().store);
  await starting;
  assert.equal((await get(url, '/greeting')).status, 200);
});

test('while the domain opens, answers state the progress that it reports', async (t) => {
  const port = await freePort();
  const opening = Promise.withResolvers<void>();
  const slow = {
    ...smallest,
    open: async (context: Parameters<typeof smallest.open>[0]) => {
      context.reportOpening('replaying: 4 of 9 segments');
      await opening.promise;
      return await smallest.open(context);
    },
  };
  const log = createLog({ service: 'index', level: 'fatal', sink: { write: () => undefined } });
  const starting = startService(slow, { config: configOf([], port), metrics: new Metrics('index'), log, env: {} });
  t.after(async () => (await starting).abort());
  const url = `http://127.0.0.1:${port}`;
  for (;;) {
    const answer = await get(url, '/readyz').catch(() => undefined);
    if (answer === undefined) continue;
    assert.equal(answer.status, 503);
    if ((await answer.text()).includes('replaying: 4 of 9 segments')) break;
  }
  opening.resolve();
  assert.equal((await get((await starting).url, '/greeting')).status, 200);
});

test('a start that fails closes the resources that it opened and frees its port', async (t) => {
  const port = await freePort();
  const config = configOf([], port);
  const { store, closed } = watchedStore();
  const failing = {
    ...smallest,
    open: async (context: Parameters<typeof smallest.open>[0]) => {
      await smallest.open({ ...context, overrides: { openStore: async () => store } });
      throw new Error('the domain did not open');
    },
  };
  const log = createLog({ service: 'index', level: 'fatal', sink: { write: () => undefined } });
  const init = { config, metrics: new Metrics('index'), log, env: {} };
  await assert.rejects(startService(failing, init), /the domain did not open/);
  assert.equal(closed(), 1);
  const service = await start(t, { config });
  assert.equal((await get(service.url, '/healthz')).status, 200);
});

test('a service with passport and without the task that polls it does not start', async () => {
  const { revocation_watch: _, ...tasks } = smallest.concurrency.tasks;
  const silent = { ...smallest, concurrency: { ...smallest.concurrency, tasks } } as unknown as typeof smallest;
  const config = configOf(['--auth.passport_url=unix:/nonexistent/passport.sock']);
  const log = createLog({ service: 'index', level: 'fatal', sink: { write: () => undefined } });
  const init = { config, metrics: new Metrics('index'), log, env: {} };
  await assert.rejects(startService(silent, init), /auth\.passport_url declares revocation_watch/);
});

test('a domain event is logged at its level', async (t) => {
  const lines: Record<string, unknown>[] = [];
  const service = await start(t, {}, lines);
  await get(service.url, '/greeting');
  while (!lines.some((line) => line['msg'] === 'greeted')) await new Promise(setImmediate);
  assert.equal(lines.find((line) => line['msg'] === 'greeted')?.['level'], 'debug');
});

test('a configuration that its source publishes is in force for the next request', async (t) => {
  const watch = new Watch('source', configOf());
  const source = {
    get value() {
      return watch.value;
    },
    watch,
  };
  const service = await start(t, { config: watch.value, source });
  watch.set(configOf(['--index.greeting=servus']));
  for (;;) {
    const { greeting } = (await (await get(service.url, '/greeting')).json()) as { greeting: string };
    if (greeting === 'servus') break;
    assert.equal(greeting, 'hello');
  }
});

test('a drain answers the requests in flight, closes the resources once, and frees the port', async (t) => {
  const { store, closed } = watchedStore();
  const service = await start(t, { openStore: async () => store });
  const answers = Promise.all(Array.from({ length: 8 }, () => get(service.url, '/greeting')));
  await answers;
  await Promise.all([service.drain(), service.abort()]);
  assert.equal(closed(), 1);
  await assert.rejects(get(service.url, '/healthz'));
});

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as { port: number };
  server.close();
  await once(server, 'close');
  return port;
}
