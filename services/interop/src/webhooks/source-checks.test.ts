import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Descriptor } from '@ron/proto';
import type { Provider } from '../providers/providers.ts';
import { AddressRates } from './address-rates.ts';
import { SourceChecks } from './source-checks.ts';

const INSIDE = '192.0.2.7';
const OUTSIDE = '198.51.100.1';

const providerOf = (init: Partial<Descriptor> = {}, problem?: string): Provider => ({
  descriptor: {
    name: 'shop',
    scheme: 'stripe',
    topic: 'hooks.shop',
    networks: [],
    origins: [],
    limits: { rps: 1, inflight: 1 },
    ...init,
  },
  incarnation: 1,
  secrets: [],
  ...(problem !== undefined && { problem }),
  countUse: () => undefined,
});

function checksOf(provider: Provider, rate = 100): SourceChecks {
  const get = (name: string): Provider | undefined => (name === 'shop' ? provider : undefined);
  return new SourceChecks({ get }, new AddressRates(() => rate));
}

const from = (ip: string, ...origins: string[]) => ({
  ip,
  headerValues: (name: string) => (name === 'origin' ? origins : []),
});

test('an unknown provider is 404 POLICY_BLOCKED', () => {
  const checks = checksOf(providerOf());
  assert.throws(() => checks.admit('other', from(OUTSIDE)), { code: 'not_found', reason: 'POLICY_BLOCKED' });
});

test('a closed provider is 403 POLICY_BLOCKED', () => {
  const checks = checksOf(providerOf({}, 'its file is damaged'));
  assert.throws(() => checks.admit('shop', from(OUTSIDE)), { code: 'forbidden', reason: 'POLICY_BLOCKED' });
});

test('without networks, all addresses are admitted', () => {
  const provider = providerOf();
  for (const ip of [INSIDE, OUTSIDE, '2001:db8::1', '::1'])
    assert.equal(checksOf(provider).admit('shop', from(ip)), provider);
});

test('with networks, other addresses are 403 BAD_ORIGIN', () => {
  const provider = providerOf({ networks: ['192.0.2.0/24', '2001:db8::/32'] });
  const checks = checksOf(provider);
  for (const ip of [INSIDE, '::ffff:192.0.2.9', '2001:db8:1::1'])
    assert.equal(checks.admit('shop', from(ip)), provider);
  for (const ip of [OUTSIDE, '192.0.3.1', '2001:db9::1', '::1', 'not an address'])
    assert.throws(() => checks.admit('shop', from(ip)), { code: 'forbidden', reason: 'BAD_ORIGIN' }, ip);
});

test('an Origin header is refused unless it is listed', () => {
  const checks = checksOf(providerOf({ origins: ['https://a.example'] }));
  checks.admit('shop', from(OUTSIDE, 'https://a.example'));
  const bad = [
    ['https://b.example'],
    ['null'],
    [''],
    ['https://a.example', 'https://a.example'],
    ['https://A.example'],
  ];
  for (const origins of bad)
    assert.throws(() => checks.admit('shop', from(OUTSIDE, ...origins)), { code: 'forbidden', reason: 'BAD_ORIGIN' });
  assert.throws(() => checksOf(providerOf()).admit('shop', from(OUTSIDE, 'https://a.example')), {
    reason: 'BAD_ORIGIN',
  });
});

test('every request is charged to its address, admitted or refused', () => {
  const limited = { code: 'address_rate_limited', reason: 'RATE_LIMIT', retry_after_ms: 1000 };
  const refusing: readonly (readonly [string, Provider, string])[] = [
    ['other', providerOf(), 'not_found'],
    ['shop', providerOf({}, 'closed'), 'forbidden'],
    ['shop', providerOf({ networks: ['192.0.2.0/24'] }), 'forbidden'],
  ];
  for (const [name, provider, code] of refusing) {
    const checks = checksOf(provider, 2);
    for (let at = 0; at < 2; at += 1) assert.throws(() => checks.admit(name, from(OUTSIDE)), { code });
    assert.throws(() => checks.admit(name, from(OUTSIDE)), limited);
  }
});

test('addresses in the networks share one bucket; a forger outside cannot use it up', () => {
  const checks = checksOf(providerOf({ networks: ['192.0.2.0/24'] }), 2);
  for (const ip of [OUTSIDE, OUTSIDE, OUTSIDE]) assert.throws(() => checks.admit('shop', from(ip)));
  checks.admit('shop', from('192.0.2.1'));
  checks.admit('shop', from('192.0.2.2'));
  assert.throws(() => checks.admit('shop', from('192.0.2.3')), { code: 'address_rate_limited' });
});
