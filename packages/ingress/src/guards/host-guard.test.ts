import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { fuzzRuns } from '@ron/testkit';
import { hostAllowed, HostGuard, hostName, hostsFor, isLoopback } from './host-guard.ts';

const loopback = hostsFor('127.0.0.1', [])!;

test('a loopback listener accepts loopback names, with any port or none', () => {
  for (const host of ['localhost', 'LOCALHOST', 'localhost:8080', '127.0.0.1', '127.0.0.1:1', '[::1]', '[::1]:65535'])
    assert.ok(hostAllowed(host, loopback), host);
});

test('rebinding names, userinfo, spoofed ports and look-alikes are refused', () => {
  for (const host of [
    'evil.example',
    'localhost.evil.example',
    'evil.example:80',
    'xlocalhost',
    'localhost.',
    '127.0.0.1.nip.io',
    '127.0.0.2',
    '127.1',
    '0x7f000001',
    '2130706433',
    '0.0.0.0',
    '::1',
    '[::1',
    '[::1]x',
    '[::1]:',
    '[::]',
    'localhost:',
    'localhost:x',
    'localhost:80:80',
    'localhost:65536',
    'localhost:-1',
    'user@localhost',
    'localhost@evil',
    'localhost/',
    'localhost#',
    'localhost ',
    ' localhost',
    'localhost,evil',
    '',
    ':',
    ':80',
    '[]',
    'loc\0alhost',
    'lo\u00e7alhost',
    'a'.repeat(10_000),
  ])
    assert.ok(!hostAllowed(host, loopback), JSON.stringify(host));
});

test('a guard gives the same answer on every call, independent of earlier calls', () => {
  const guard = new HostGuard(loopback);
  for (const host of ['localhost:1', 'localhost:1', 'evil.example', 'evil.example', '127.0.0.1', 'localhost:1', ''])
    assert.equal(guard.allows(host), hostAllowed(host, loopback), host);
  assert.ok(new HostGuard(undefined).allows('anything at all'));
});

test('the accepted hosts follow from the bind address', () => {
  assert.equal(hostsFor('0.0.0.0', []), undefined);
  assert.equal(hostsFor('::', []), undefined);
  assert.deepEqual(hostsFor('203.0.113.1', ['ron.example']), ['ron.example', 'localhost']);
  assert.ok(hostAllowed('RON.example:1', hostsFor('127.0.0.1', ['Ron.Example'])!));
  assert.ok(hostAllowed('127.0.0.9:5', hostsFor('127.0.0.9', [])!));
  assert.ok(hostAllowed('[::1]:5', hostsFor('::1', [])!));
});

test('loopback addresses are recognised', () => {
  for (const address of [
    '127.0.0.1',
    '127.255.0.1',
    '::1',
    '0:0:0:0:0:0:0:1',
    '::ffff:127.0.0.1',
    'localhost',
    'LocalHost',
  ])
    assert.ok(isLoopback(address), address);
  for (const address of ['0.0.0.0', '::', '10.0.0.1', '128.0.0.1', 'example.org', '', 'localhost.evil'])
    assert.ok(!isLoopback(address), address);
});

test('arbitrary Host values never throw, and exactly the listed names with an optional port are allowed', () => {
  const near = fc
    .tuple(
      fc.constantFrom('localhost', '127.0.0.1', '[::1]', 'evil', ''),
      fc.constantFrom('', ':', ':80', ':99999', 'x', ' ', '\r\n', '.'),
    )
    .map((parts) => parts.join(''));
  fc.assert(
    fc.property(fc.oneof(near, fc.string({ unit: 'binary' })), (host) => {
      hostName(host);
      if (hostAllowed(host, loopback)) assert.match(host, /^(localhost|127\.0\.0\.1|\[::1\])(:\d{1,5})?$/i);
    }),
    fuzzRuns(2000),
  );
});
