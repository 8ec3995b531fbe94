/** A published configuration takes effect while passport runs, and not once it stops. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createLog, Metrics } from '@ron/telemetry';
import { loadConfig } from '@ron/config';
import { Watch } from '@ron/kernel';
import { schema, startPassport } from '@ron/passport';

const load = (...flags: string[]) => loadConfig({ schema, flags: ['--amnesia.enabled=true', ...flags] });
const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

test('issuing follows the published configuration until a drain begins', async () => {
  const watch = new Watch('config', load());
  const source = {
    watch,
    get value() {
      return watch.value;
    },
  };
  const log = createLog({ service: 'passport', sink: { write: () => undefined } });
  const metrics = new Metrics('passport');
  const starting = startPassport({ config: watch.value, source, metrics, log, env: {} });
  watch.set(load('--drain_deadline=2s'));
  await using passport = await starting;
  const { config } = passport;
  await turn();
  assert.equal(config.value.drain_deadline, 2000, 'it was published during the start');
  watch.set(load('--passport.ttl_default=5m', '--passport.ttl_max=10m'));
  await turn();
  assert.equal(config.value.passport.ttl_max, 600_000);
  const drained = passport.drain();
  watch.set(load());
  await turn();
  assert.equal(config.value.passport.ttl_max, 600_000);
  await drained;
});
