import assert from 'node:assert/strict';
import { test } from 'node:test';
import { parseAddress } from '@ron/http/networks';
import fc from 'fast-check';
import { classify } from './classify.ts';

const numRuns = Number(process.env['RON_FUZZ_RUNS'] ?? 2000);

const v4Text = (bytes: Uint8Array): string => bytes.join('.');
const v6Text = (bytes: Uint8Array): string =>
  Array.from({ length: 8 }, (_, group) => ((bytes[group * 2]! << 8) | bytes[group * 2 + 1]!).toString(16)).join(':');
const textOf = (bytes: Uint8Array): string => (bytes.length === 4 ? v4Text(bytes) : v6Text(bytes));

const v4 = fc.uint8Array({ minLength: 4, maxLength: 4 });
const v6 = fc.uint8Array({ minLength: 16, maxLength: 16 });
const anyAddress = fc.oneof(v4, v6);

/** The table again, as first and last addresses, so that a wrong prefix length in the code is seen. */
const RANGES: readonly (readonly [first: string, last: string])[] = [
  ['0.0.0.0', '0.255.255.255'],
  ['10.0.0.0', '10.255.255.255'],
  ['100.64.0.0', '100.127.255.255'],
  ['127.0.0.0', '127.255.255.255'],
  ['168.63.129.16', '168.63.129.16'],
  ['169.254.0.0', '169.254.255.255'],
  ['172.16.0.0', '172.31.255.255'],
  ['192.0.0.0', '192.0.0.255'],
  ['192.0.2.0', '192.0.2.255'],
  ['192.88.99.0', '192.88.99.255'],
  ['192.168.0.0', '192.168.255.255'],
  ['198.18.0.0', '198.19.255.255'],
  ['198.51.100.0', '198.51.100.255'],
  ['203.0.113.0', '203.0.113.255'],
  ['224.0.0.0', '255.255.255.255'],
  ['::', '1fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff'],
  ['2001::', '2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff'],
  ['2001:db8::', '2001:db8:ffff:ffff:ffff:ffff:ffff:ffff'],
  ['2002::', '2002:ffff:ffff:ffff:ffff:ffff:ffff:ffff'],
  ['3fff::', '3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff'],
  ['4000::', 'ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff'],
];

const valueOf = (bytes: Uint8Array): bigint => bytes.reduce((value, byte) => (value << 8n) | BigInt(byte), 0n);
const bytesOf = (value: bigint, length: number): Uint8Array =>
  Uint8Array.from({ length }, (_, index) => Number((value >> BigInt(8 * (length - 1 - index))) & 0xffn));

function isSpecial(address: Uint8Array): boolean {
  return RANGES.some(([first, last]) => {
    const [from, to] = [parseAddress(first)!, parseAddress(last)!];
    return from.length === address.length && valueOf(from) <= valueOf(address) && valueOf(address) <= valueOf(to);
  });
}

test('an address is public exactly when it lies in no special range', () => {
  const nearEdge = fc.tuple(fc.constantFrom(...RANGES.flat()), fc.bigInt(-3n, 3n)).map(([text, offset]) => {
    const edge = parseAddress(text)!;
    const size = 1n << BigInt(edge.length * 8);
    return bytesOf((valueOf(edge) + offset + size) % size, edge.length);
  });
  const globalUnicast = v6.map((bytes) => ((bytes[0] = 0x20 | (bytes[0]! & 0x1f)), bytes));
  fc.assert(
    fc.property(fc.oneof(nearEdge, anyAddress, globalUnicast), (address) => {
      assert.equal(classify(address) !== 'public', isSpecial(address), textOf(address));
    }),
    { numRuns: numRuns * 3 },
  );
});

test('each kind is named', () => {
  const kinds: Record<string, string> = {
    '8.8.8.8': 'public',
    '1.1.1.1': 'public',
    '192.0.1.1': 'public',
    '2606:4700::1111': 'public',
    '0.0.0.0': 'unspecified',
    '0.1.2.3': 'reserved',
    '127.9.9.9': 'loopback',
    '10.1.1.1': 'private',
    '100.100.1.1': 'shared',
    '100.100.100.200': 'metadata',
    '169.254.169.254': 'metadata',
    '169.254.1.1': 'link_local',
    '168.63.129.16': 'metadata',
    '168.63.129.17': 'public',
    '198.19.1.1': 'benchmark',
    '203.0.113.9': 'documentation',
    '239.1.1.1': 'multicast',
    '255.255.255.255': 'broadcast',
    '250.1.1.1': 'reserved',
    '::': 'unspecified',
    '::1': 'loopback',
    '::8.8.8.8': 'ipv4_embedded',
    '::ffff:8.8.8.8': 'ipv4_embedded',
    '::ffff:0:8.8.8.8': 'ipv4_embedded',
    '64:ff9b::8.8.8.8': 'ipv4_embedded',
    '64:ff9b:1::1': 'ipv4_embedded',
    '2001:0:1::1': 'ipv4_embedded',
    '2002:808:808::': 'ipv4_embedded',
    '2001:db8::1': 'documentation',
    '2001:2::1': 'benchmark',
    '3fff::1': 'documentation',
    '100::1': 'reserved',
    'fd00::1': 'private',
    'fd00:ec2::254': 'metadata',
    'fe80::1': 'link_local',
    'fec0::1': 'site_local',
    'ff02::1': 'multicast',
    '5f00::1': 'reserved',
  };
  const found = Object.fromEntries(Object.keys(kinds).map((text) => [text, classify(parseAddress(text)!)]));
  assert.deepEqual(found, kinds);
});
