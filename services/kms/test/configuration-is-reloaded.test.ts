/** Configuration keys that take effect while kms runs. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createLog, Metrics } from '@ron/telemetry';
import { loadConfig } from '@ron/config';
import { Watch, NEVER } from '@ron/kernel';
import { schema, startKms, type Kms } from '@ron/kms';
import { mint } from '@ron/auth';
import { scopesOf } from '@ron/proto';
import { B3 } from './support.ts';
import { eventually } from '@ron/testkit';
import { send, type Reply } from '@ron/testkit/service';
import { FaultyBackend } from './faulty-backend.ts';

const load = (...flags: string[]) => loadConfig({ schema, flags: ['--amnesia.enabled=true', ...flags] });
const log = createLog({ service: 'kms', sink: { write: () => undefined } });

function sourceOf<C>(config: C): { readonly watch: Watch<C>; readonly value: C } {
  const watch = new Watch('config', config);
  return {
    watch,
    get value() {
      return watch.value;
    },
  };
}

async function poster(kms: Kms): Promise<(path: string, body: unknown) => Promise<Reply>> {
  const { token } = await mint(kms.keys, { audience: 'kms', scopes: scopesOf('kms'), ttl_ms: 60_000 }, NEVER);
  const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json' };
  return (path, body) => send(kms.url, 'POST', `/v1/kms${path}`, { headers, body: JSON.stringify(body) });
}

test('a configuration that is published during the start is applied', async () => {
  const source = sourceOf(load());
  const backend = new FaultyBackend();
  const starting = startKms({ config: source.value, source, metrics: new Metrics('kms'), log, backend, env: {} });
  source.watch.set(load('--kms.verify_ttl=1ms'));
  await using kms = await starting;
  const post = await poster(kms);
  const { kid } = (await post('/keys', { tenant: 'acme', purpose: 'docs', alg: 'ed25519' })).json;
  const { sigs } = (await post('/sign', { kid, payload_b3: B3 })).json;
  backend.isUnavailable = true;
  await eventually(
    'the published time to live counts',
    async () => (await post('/verify', { kid, payload_b3: B3, sigs })).status === 503,
  );
});

test('a reloaded configuration applies to the next request', async () => {
  const source = sourceOf(load());
  const { watch } = source;
  const backend = new FaultyBackend();
  await using kms = await startKms({
    config: source.value,
    source,
    metrics: new Metrics('kms'),
    log,
    backend,
    env: {},
  });
  const post = await poster(kms);
  const { kid } = (await post('/keys', { tenant: 'acme', purpose: 'docs', alg: 'ed25519' })).json;
  backend.isHanging = true;
  watch.set(load('--kms.sign_deadline=50ms', '--kms.verify_ttl=1ms', '--kms.keep_interval=10ms'));
  const began_ms = performance.now();
  assert.equal((await post('/sign', { kid, payload_b3: B3 })).status, 504);
  assert.ok(performance.now() - began_ms < 1500, 'the shorter deadline applies');
  backend.isHanging = false;
  const { sigs } = (await post('/sign', { kid, payload_b3: B3 })).json;
  backend.isUnavailable = true;
  await eventually(
    'the cached keys expire immediately',
    async () => (await post('/verify', { kid, payload_b3: B3, sigs })).status === 503,
  );
});
