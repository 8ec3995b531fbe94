import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ConfigSource, defineConfig } from '@ron/config';
import { checkIngressKeys, INGRESS_KEYS } from './ingress-keys.ts';

const schema = defineConfig({ ...INGRESS_KEYS }, checkIngressKeys);

const open = (...flags: string[]): Promise<unknown> =>
  ConfigSource.open({ schema, flags, env: {}, env_prefix: 'RON_X_', file: undefined });

const REFUSED: Record<string, string> = {
  'server.bind': '127.0.0.1:70000',
  metrics_addr: '[zz]:1',
  'server.trusted_proxies': '10.0.0.0/99',
  'tls.cert_file': '/a.pem',
};

for (const [key, value] of Object.entries(REFUSED)) {
  test(`${key} = ${value} is refused when the configuration is read, with the key and the expected form`, async () => {
    const named = key === 'tls.cert_file' ? 'tls.key_file' : key;
    await assert.rejects(open(`--${key}=${value}`), new RegExp(`${named}: expected `));
  });
}

test('valid addresses and proxies are accepted', async () => {
  await open('--server.bind=[::1]:0', '--metrics_addr=unix:/run/x.sock', '--server.trusted_proxies=10.0.0.0/8,::1');
});
