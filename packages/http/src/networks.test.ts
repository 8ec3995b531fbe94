import assert from 'node:assert/strict';
import { BlockList, isIPv4, isIPv6, SocketAddress } from 'node:net';
import { test } from 'node:test';
import fc from 'fast-check';
import { contains, mapped, parseAddress, parseNetwork, parsePeerAddress, unmapped } from './networks.ts';

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

test('bits beyond the prefix do not matter where the caller says so', () => {
  const network = parseNetwork('10.1.2.3/8', 'ignore');
  assert.ok(network !== undefined);
  assert.equal(contains(network, parseAddress('10.9.9.9')!), true);
  assert.equal(contains(network, parseAddress('11.1.2.3')!), false);
  assert.equal(parseNetwork('10.1.2.3/33', 'ignore'), undefined);
});

test('an IPv4 address and its IPv4-mapped address are converted into each other, and others stay as they are', () => {
  fc.assert(
    fc.property(v4, (bytes) => {
      assert.deepEqual(mapped(bytes), parseAddress(`::ffff:${v4Text(bytes)}`));
      assert.deepEqual(unmapped(mapped(bytes)), bytes);
      assert.deepEqual(unmapped(bytes), bytes);
      assert.deepEqual(parsePeerAddress(`::ffff:${v4Text(bytes)}`), bytes);
    }),
    { numRuns },
  );
  for (const text of ['::1', '::', '::fffe:10.0.0.1', '2001:db8::ffff:1'])
    assert.deepEqual(unmapped(parseAddress(text)!), parseAddress(text), text);
});

test('the address of a peer may have a zone, unless it is an IPv4 address', () => {
  assert.deepEqual(parsePeerAddress('fe80::1%eth0'), parseAddress('fe80::1'));
  assert.deepEqual(parsePeerAddress('10.0.0.1'), parseAddress('10.0.0.1'));
  for (const text of ['10.0.0.1%eth0', '%', '', 'unknown']) assert.equal(parsePeerAddress(text), undefined, text);
});
