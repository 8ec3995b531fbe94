import assert from 'node:assert/strict';
import { BlockList, isIP, isIPv4 } from 'node:net';
import { test } from 'node:test';
import fc from 'fast-check';
import { RonError } from '@ron/kernel';
import { fuzzRuns } from '@ron/testkit';
import { assertLinearTime } from '../../test/linear-time.ts';
import { clientIp, compileProxies, normalizeIp } from './client-ip.ts';

const PROXIES = ['10.0.0.0/8', '192.0.2.1', '2001:db8::/32'];
const from = (remote: string, forwarded: string, proxies = PROXIES): string =>
  clientIp(remote, { 'x-forwarded-for': forwarded }, proxies);

test('without trusted proxies the header is ignored', () => {
  assert.equal(from('203.0.113.9', '1.1.1.1', []), '203.0.113.9');
  assert.equal(clientIp(undefined, {}, []), 'unknown');
});

test('a peer that is not a trusted proxy cannot claim another address', () => {
  assert.equal(from('203.0.113.9', '1.1.1.1'), '203.0.113.9');
});

test('behind trusted proxies the rightmost untrusted address is the client', () => {
  assert.equal(from('10.1.2.3', '198.51.100.7'), '198.51.100.7');
  assert.equal(from('10.1.2.3', '6.6.6.6, 198.51.100.7, 192.0.2.1'), '198.51.100.7');
  assert.equal(from('::ffff:10.1.2.3', '6.6.6.6,198.51.100.7'), '198.51.100.7');
  assert.equal(from('2001:db8::5', '::ffff:198.51.100.7'), '198.51.100.7');
  assert.equal(from('10.1.2.3', '198.51.100.7:4711'), '198.51.100.7');
  assert.equal(from('10.1.2.3', '[2001:DB9::0001]:4711'), '2001:db9::1');
  assert.equal(from('10.1.2.3', '10.0.0.1, 10.0.0.2'), '10.0.0.1', 'all trusted: the first');
  assert.equal(clientIp('10.1.2.3', {}, PROXIES), '10.1.2.3');
});

test('an unreadable entry ends the chain at the last readable address', () => {
  for (const bad of [
    '',
    ',',
    'unknown',
    '_hidden',
    '1.2.3',
    '256.1.1.1',
    '198.51.100.7,',
    'x'.repeat(1000),
    '1.1.1.1 2.2.2.2',
    '[::1',
    '0x7f.1',
  ])
    assert.equal(from('10.1.2.3', bad), '10.1.2.3', bad);
  assert.equal(from('10.1.2.3', 'junk, 10.9.9.9'), '10.9.9.9');
});

test('the number of hops that are read is bounded', () => {
  const chain = ['198.51.100.7', ...Array.from({ length: 40 }, () => '10.0.0.1')].join(',');
  assert.equal(from('10.1.2.3', chain), '10.0.0.1');
});

test('an address is normalized to one spelling', () => {
  for (const [text, expected] of [
    ['::ffff:1.2.3.4', '1.2.3.4'],
    ['::FFFF:1.2.3.4', '1.2.3.4'],
    ['::ffff:102:304', '1.2.3.4'],
    ['0:0:0:0:0:ffff:0102:0304', '1.2.3.4'],
    ['0:0:0:0:0:0:0:1', '::1'],
    ['2001:DB8:0:0::1', '2001:db8::1'],
    ['fe80::1%eth0', 'fe80::1'],
    ['1.2.3.4', '1.2.3.4'],
    ['01.2.3.4', undefined],
    ['', undefined],
    ['localhost', undefined],
  ] as const)
    assert.equal(normalizeIp(text), expected, text);
});

test('an invalid entry of trusted_proxies is named in the error', () => {
  for (const entry of [
    '',
    'example.org',
    '10.0.0.0/33',
    '10.0.0.0/',
    '::/129',
    '10.0.0.0/8/8',
    '10.0.0.0/-1',
    '10.0.0.0/1e1',
  ])
    assert.throws(
      () => compileProxies([entry]),
      (error) =>
        error instanceof RonError && error.code === 'validation' && error.message.includes(JSON.stringify(entry)),
      entry,
    );
});

test('an address is trusted exactly when net.BlockList contains it', () => {
  const address = fc.oneof(fc.ipV4(), fc.ipV6(), fc.constantFrom('10.0.0.1', '::ffff:10.0.0.1', '::', '::1'));
  fc.assert(
    fc.property(fc.array(fc.tuple(address, fc.nat(128)), { maxLength: 3 }), address, (networks, ip) => {
      const list = new BlockList();
      const entries = networks.map(([text, length]) => {
        const base = normalizeIp(text)!;
        const bits = isIPv4(base) ? length % 33 : length;
        list.addSubnet(base, bits, isIPv4(base) ? 'ipv4' : 'ipv6');
        return `${text}/${bits}`;
      });
      assert.equal(
        compileProxies(entries).check(ip),
        list.check(ip, isIPv4(ip) ? 'ipv4' : 'ipv6'),
        `${entries.join()} ${ip}`,
      );
    }),
    fuzzRuns(5000),
  );
});

test('arbitrary headers: never throws, and the result is a normalized address', () => {
  const address = fc.oneof(fc.ipV4(), fc.ipV6(), fc.constantFrom('10.0.0.1', '::ffff:10.0.0.1', '', 'unknown'));
  const header = fc.oneof(
    fc.array(address, { maxLength: 6 }).map((list) => list.join(', ')),
    fc.string({ unit: 'binary' }),
  );
  fc.assert(
    fc.property(fc.oneof(fc.constant('10.0.0.1'), fc.ipV4(), fc.ipV6()), header, (remote, forwarded) => {
      const ip = from(remote, forwarded);
      assert.notEqual(isIP(ip), 0);
      assert.equal(normalizeIp(ip), ip);
    }),
    fuzzRuns(2000),
  );
});

test('time is linear in the length', () => {
  assertLinearTime((length) => {
    for (const piece of [',', '10.0.0.1,', '[', ' ', '1', '1.']) from('10.0.0.1', piece.repeat(length / piece.length));
  });
});
