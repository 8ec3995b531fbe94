import assert from 'node:assert/strict';
import { BlockList, isIPv4, isIPv6, SocketAddress } from 'node:net';
import { test } from 'node:test';
import fc from 'fast-check';
import { contains, parseAddress, parseNetwork } from './address.ts';
import { classify } from './classify.ts';

const numRuns = Number(process.env['RON_FUZZ_RUNS'] ?? 2000);

const family = (text: string): 'ipv4' | 'ipv6' => (text.includes(':') ? 'ipv6' : 'ipv4');
const v4Text = (bytes: Uint8Array): string => bytes.join('.');
const v6Text = (bytes: Uint8Array): string =>
  Array.from({ length: 8 }, (_, group) => ((bytes[group * 2]! << 8) | bytes[group * 2 + 1]!).toString(16)).join(':');
const textOf = (bytes: Uint8Array): string => (bytes.length === 4 ? v4Text(bytes) : v6Text(bytes));

const v4 = fc.uint8Array({ minLength: 4, maxLength: 4 });
const v6 = fc.uint8Array({ minLength: 16, maxLength: 16 });
const anyAddress = fc.oneof(v4, v6);

test('an address is the same bytes in every spelling that net accepts, and nothing else is an address', () => {
  fc.assert(
    fc.property(anyAddress, (bytes) => {
      const text = textOf(bytes);
      assert.deepEqual(parseAddress(text), bytes);
      const { address } = new SocketAddress({ address: text, family: family(text) });
      assert.deepEqual(parseAddress(address), bytes, `${address} is the compressed form`);
      assert.deepEqual(parseAddress(text.toUpperCase()), bytes);
    }),
    { numRuns },
  );
  fc.assert(
    fc.property(
      fc.oneof(
        fc.ipV4(),
        fc.ipV6(),
        fc.ipV4Extended(),
        fc.string({ unit: fc.constantFrom(...Array.from('0123456789abf:.%[]/ ')) }),
      ),
      (text) => {
        const isAddress = (isIPv4(text) || isIPv6(text)) && !text.includes('%');
        assert.equal(parseAddress(text) !== undefined, isAddress, text);
      },
    ),
    { numRuns },
  );
});

test('containment is that of net.BlockList', () => {
  fc.assert(
    fc.property(anyAddress, fc.nat(128), fc.nat(160), fc.nat(7), (bytes, length, flipped, extra) => {
      const bits = Math.min(length, bytes.length * 8);
      const prefix = bytes.map((byte, index) => byte & (0xff00 >> Math.max(0, Math.min(8, bits - index * 8))) & 0xff);
      const network = parseNetwork(`${textOf(prefix)}/${bits}`);
      assert.ok(network !== undefined);
      // The same address with one bit changed: inside or just outside.
      const other = Uint8Array.from(bytes);
      const at = flipped % (bytes.length * 8);
      other[at >> 3]! ^= 0x80 >> (at & 7);
      other[bytes.length - 1]! ^= extra;
      const list = new BlockList();
      list.addSubnet(textOf(prefix), bits, bytes.length === 4 ? 'ipv4' : 'ipv6');
      for (const address of [bytes, other]) {
        const text = textOf(address);
        assert.equal(contains(network, address), list.check(text, family(text)), `${textOf(prefix)}/${bits} ${text}`);
      }
    }),
    { numRuns },
  );
});

test('a network has a valid prefix and no bits beyond it', () => {
  for (const text of ['10.0.0.0/8', '0.0.0.0/0', '::/0', '127.0.0.1', '::1', '10.1.2.3/32', 'fd00::/8'])
    assert.ok(parseNetwork(text) !== undefined, text);
  for (const text of [
    '',
    '/',
    '10.0.0.0/',
    '10.0.0.0/33',
    '10.0.0.1/8',
    '10.0.0.0/08',
    '10.0.0.0/+8',
    '10.0.0.0/8/8',
    '::1/127',
    '::/129',
    '10/8',
    '010.0.0.0/8',
    'fe80::%lo/10',
    ' 10.0.0.0/8',
  ])
    assert.equal(parseNetwork(text), undefined, text);
});

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
