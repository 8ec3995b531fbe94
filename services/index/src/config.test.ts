import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ConfigError, loadConfig } from '@ron/config';
import { schema } from './config.ts';

const load = (...flags: string[]) => loadConfig({ schema, flags: ['--data_dir=/x', ...flags], env: {} });

test('the defaults are those of the specification', () => {
  const { dht, breaker, index, cache, server, ratelimit } = load();
  assert.deepEqual([dht.mode, dht.alpha, dht.beta, dht.hedge_ms, dht.deadline_ms], ['standalone', 3, 2, 150, 1200]);
  assert.deepEqual(breaker, { error_window_s: 10, trip_threshold: 0.5, cooldown_s: 5, half_open_probes: 2 });
  assert.deepEqual([index.resolvers, index.waiters_max, cache.entries_max, cache.ttl_s], [32, 1024, 100_000, 10]);
  assert.equal(server.connection_limit_per_ip, 256);
  assert.deepEqual(ratelimit, { per_ip_rps: undefined, per_ip_burst: undefined });
});

for (const [flags, key] of [
  [['--dht.mode=join'], 'dht.network_key_file'],
  [['--dht.hedge_ms=1200'], 'dht.hedge_ms'],
  [['--dht.bootstrap=/ip4/192.0.2.1/tcp/7108'], 'dht.bootstrap'],
  [
    [`--dht.bootstrap=/ip4/999.1.1.1/tcp/7108/p2p/12D3KooWCiFmnCAoSgocp4d9Koeem9x4AS3n27TLXLAeAMaYdn3h`],
    'dht.bootstrap',
  ],
  [['--dht.allow=0OIl'], 'dht.allow'],
  [['--dht.listen=127.0.0.1:7108'], 'dht.listen'],
  [['--dht.listen=/ip4/127.0.0.1/tcp/70000'], 'dht.listen'],
  [['--cache.warmup_keys=name:UPPER'], 'cache.warmup_keys'],
  [['--quotas.providers_max=1'], 'quotas.providers_per_subject'],
  [['--index.storage_url=ftp://host'], 'index.storage_url'],
  [['--server.max_rps_per_ip=5'], 'server.max_rps_per_ip'],
] as const)
  test(`refused: ${flags.join(' ')}`, () => {
    assert.throws(
      () => load(...flags),
      (error) => error instanceof ConfigError && error.message.includes(key),
    );
  });
