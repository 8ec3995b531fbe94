/** What can be changed while kms runs. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createLog, loadConfig, Metrics, Watch } from '@ron/kernel';
import { schema, startKms } from '@ron/kms';
import { mint } from '@ron/auth';
import { scopesOf } from '@ron/proto';
import { B3, eventually, NEVER, send } from './support.ts';
import { MoodyBackend } from './moody-backend.ts';

test('a reloaded configuration is in force for the next request', async () => {
  const load = (...flags: string[]) => loadConfig({ schema, flags: ['--amnesia.enabled=true', ...flags] });
  const watch = new Watch('config', load());
  const source = {
    watch,
    get value() {
      return watch.value;
    },
  };
  const log = createLog({ service: 'kms', sink: { write: () => undefined } });
  const backend = new MoodyBackend();
  await using kms = await startKms({ config: watch.value, source, metrics: new Metrics('kms'), log, backend, env: {} });
  const { token } = await mint(kms.keys, { audience: 'kms', scopes: scopesOf('kms'), ttl_ms: 60_000 }, NEVER);
  const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json' };
  const post = (path: string, body: unknown) =>
    send(kms.url, 'POST', `/v1/kms${path}`, { headers, body: JSON.stringify(body) });
  const { kid } = (await post('/keys', { tenant: 'acme', purpose: 'docs', alg: 'ed25519' })).body;
  backend.isHanging = true;
  watch.set(load('--kms.sign_deadline=50ms', '--kms.verify_ttl=1ms', '--kms.keep_interval=10ms'));
  const began_ms = performance.now();
  assert.equal((await post('/sign', { kid, payload_b3: B3 })).status, 504);
  assert.ok(performance.now() - began_ms < 1500, 'the shorter deadline counts');
  backend.isHanging = false;
  const { sigs } = (await post('/sign', { kid, payload_b3: B3 })).body;
  backend.isAway = true;
  await eventually(
    'what is known is too old at once',
    async () => (await post('/verify', { kid, payload_b3: B3, sigs })).status === 503,
  );
});
