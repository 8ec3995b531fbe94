/** Each field of a descriptor has one valid spelling and a limit. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { INTEROP_LIMITS, MAILBOX_LIMITS, type ProviderInit } from '@ron/proto';
import { requireDescriptor } from './descriptor.ts';

const GENERIC = {
  template: '{timestamp}.{body}',
  signature_header: 'X-Sign',
  timestamp_header: 'X-Time',
  encoding: 'hex',
  algorithm: 'sha256',
} as const;
const topicOf = (chars: number): string => `hooks.${'a'.repeat(chars - 6)}`;
const networksOfCount = (count: number): string[] => Array.from({ length: count }, (_, at) => `10.0.${at}.0/24`);
const originsOfCount = (count: number): string[] => Array.from({ length: count }, (_, at) => `https://a${at}.example`);

test('the defaults are filled in: topic, networks, origins and limits', () => {
  assert.deepEqual(requireDescriptor('github', { scheme: 'github' }), {
    name: 'github',
    scheme: 'github',
    topic: 'hooks.github',
    networks: [],
    origins: [],
    limits: { rps: 100, inflight: 64 },
  });
  const { limits } = requireDescriptor('a', { scheme: 'slack', limits: { rps: 7 } });
  assert.deepEqual(limits, { rps: 7, inflight: 64 });
});

test('each field is accepted at its limit and refused beyond it', () => {
  const { networks, origins, rps_max, inflight_max, origin_chars } = INTEROP_LIMITS;
  const longest = `https://${'a'.repeat(origin_chars - 8)}`;
  const fits: ProviderInit[] = [
    { scheme: 'github', topic: topicOf(MAILBOX_LIMITS.topic_chars) },
    { scheme: 'github', networks: networksOfCount(networks) },
    { scheme: 'github', networks: ['2001:db8::/32', '192.0.2.1'] },
    { scheme: 'github', origins: originsOfCount(origins) },
    { scheme: 'github', origins: [longest, 'http://localhost:8080'] },
    { scheme: 'github', limits: { rps: rps_max, inflight: inflight_max } },
    { scheme: 'generic', generic: GENERIC },
  ];
  for (const init of fits) assert.ok(requireDescriptor('a', init));
  const refused: [ProviderInit, RegExp][] = [
    [{ scheme: 'gitlab' as never }, /scheme/],
    [{ scheme: 'github', topic: 'orders' }, /topic/],
    [{ scheme: 'github', topic: 'hooks' }, /topic/],
    [{ scheme: 'github', topic: 'hooks.' }, /topic/],
    [{ scheme: 'github', topic: 'hooks.A' }, /topic/],
    [{ scheme: 'github', topic: topicOf(MAILBOX_LIMITS.topic_chars + 1) }, /topic/],
    [{ scheme: 'github', networks: networksOfCount(networks + 1) }, /networks has more/],
    [{ scheme: 'github', networks: ['10.0.0.1/8'] }, /networks\/0/],
    [{ scheme: 'github', networks: ['10.0.0.0/8', 'example.com'] }, /networks\/1/],
    [{ scheme: 'github', networks: ['10.0.0.0/8', '10.0.0.0/8'] }, /twice/],
    [{ scheme: 'github', origins: originsOfCount(origins + 1) }, /origins has more/],
    [{ scheme: 'github', origins: [`${longest}a`] }, /origins\/0/],
    [{ scheme: 'github', origins: ['null'] }, /origins\/0/],
    [{ scheme: 'github', origins: ['https://a.example/'] }, /origins\/0/],
    [{ scheme: 'github', origins: ['https://a.example:443'] }, /origins\/0/],
    [{ scheme: 'github', origins: ['ftp://a.example'] }, /origins\/0/],
    [{ scheme: 'github', limits: { rps: 0 } }, /limits.rps/],
    [{ scheme: 'github', limits: { rps: rps_max + 1 } }, /limits.rps/],
    [{ scheme: 'github', limits: { rps: 1.5 } }, /limits.rps/],
    [{ scheme: 'github', limits: { inflight: inflight_max + 1 } }, /limits.inflight/],
    [{ scheme: 'github', limits: { inflight: 0 } }, /limits.inflight/],
    [{ scheme: 'github', generic: GENERIC }, /only for the scheme generic/],
    [{ scheme: 'generic' }, /required/],
    [{ scheme: 'generic', generic: { ...GENERIC, template: '{body}.' } }, /template/],
  ];
  for (const [init, message] of refused)
    assert.throws(() => requireDescriptor('a', init), { code: 'validation', message });
});

test('a name that is not a plain word is refused', () => {
  for (const name of ['', 'A', 'a.b', '../a', 'a'.repeat(33)])
    assert.throws(() => requireDescriptor(name, { scheme: 'github' }), { code: 'validation' });
  assert.equal(requireDescriptor('a'.repeat(32), { scheme: 'github' }).name.length, 32);
});
