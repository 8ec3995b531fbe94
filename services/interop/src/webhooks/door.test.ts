import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Descriptor } from '@ron/proto';
import type { Provider } from '../providers/providers.ts';
import { AddressRates } from './address-rates.ts';
import { Door } from './door.ts';

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
  secrets: [],
  ...(problem !== undefined && { problem }),
  countUse: () => undefined,
});

function doorOf(provider: Provider, rate = 100): Door {
  const get = (name: string): Provider | undefined => (name === 'shop' ? provider : undefined);
  return new Door({ get }, new AddressRates(() => rate));
}

const from = (ip: string, ...origins: string[]) => ({
  ip,
  headerValues: (name: string) => (name === 'origin' ? origins : []),
});

test('an unknown provider is 404 POLICY_BLOCKED', () => {
  const door = doorOf(providerOf());
  assert.throws(() => door.admit('other', from(OUTSIDE)), { code: 'not_found', reason: 'POLICY_BLOCKED' });
});

test('a closed provider is 403 POLICY_BLOCKED', () => {
  const door = doorOf(providerOf({}, 'its file is damaged'));
  assert.throws(() => door.admit('shop', from(OUTSIDE)), { code: 'forbidden', reason: 'POLICY_BLOCKED' });
});

test('without networks, all addresses are admitted', () => {
  const provider = providerOf();
  for (const ip of [INSIDE, OUTSIDE, '2001:db8::1', '::1'])
    assert.equal(doorOf(provider).admit('shop', from(ip)), provider);
});

test('with networks, other addresses are 403 BAD_ORIGIN', () => {
  const provider = providerOf({ networks: ['192.0.2.0/24', '2001:db8::/32'] });
  const door = doorOf(provider);
  for (const ip of [INSIDE, '::ffff:192.0.2.9', '2001:db8:1::1']) assert.equal(door.admit('shop', from(ip)), provider);
  for (const ip of [OUTSIDE, '192.0.3.1', '2001:db9::1', '::1', 'not an address'])
    assert.throws(() => door.admit('shop', from(ip)), { code: 'forbidden', reason: 'BAD_ORIGIN' }, ip);
});

test('an Origin header is refused unless it is listed', () => {
  const door = doorOf(providerOf({ origins: ['https://a.example'] }));
  door.admit('shop', from(OUTSIDE, 'https://a.example'));
  const bad = [
    ['https://b.example'],
    ['null'],
    [''],
    ['https://a.example', 'https://a.example'],
    ['https://A.example'],
  ];
  for (const origins of bad)
    assert.throws(() => door.admit('shop', from(OUTSIDE, ...origins)), { code: 'forbidden', reason: 'BAD_ORIGIN' });
  assert.throws(() => doorOf(providerOf()).admit('shop', from(OUTSIDE, 'https://a.example')), { reason: 'BAD_ORIGIN' });
});

test('every request is charged to its address, whatever the outcome', () => {
  const limited = { code: 'address_rate_limited', reason: 'RATE_LIMIT', retry_after_ms: 1000 };
  const refusing: readonly (readonly [string, Provider, string])[] = [
    ['other', providerOf(), 'not_found'],
    ['shop', providerOf({}, 'closed'), 'forbidden'],
    ['shop', providerOf({ networks: ['192.0.2.0/24'] }), 'forbidden'],
  ];
  for (const [name, provider, code] of refusing) {
    const door = doorOf(provider, 2);
    for (let at = 0; at < 2; at += 1) assert.throws(() => door.admit(name, from(OUTSIDE)), { code });
    assert.throws(() => door.admit(name, from(OUTSIDE)), limited);
  }
});

test('addresses in the networks share one bucket; a forger outside cannot use it up', () => {
  const door = doorOf(providerOf({ networks: ['192.0.2.0/24'] }), 2);
  for (const ip of [OUTSIDE, OUTSIDE, OUTSIDE]) assert.throws(() => door.admit('shop', from(ip)));
  door.admit('shop', from('192.0.2.1'));
  door.admit('shop', from('192.0.2.2'));
  assert.throws(() => door.admit('shop', from('192.0.2.3')), { code: 'address_rate_limited' });
});
