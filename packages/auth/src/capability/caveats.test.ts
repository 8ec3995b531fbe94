import assert from 'node:assert/strict';
import { BlockList } from 'node:net';
import { test } from 'node:test';
import * as fc from 'fast-check';
import { arbitraryCaveat } from '../../test/arbitraries.ts';
import { formatCaveat, parseCaveat } from './caveats.ts';
import { inNetworks, parseNetwork } from './networks.ts';

const numRuns = Number(process.env['RON_FUZZ_RUNS'] ?? 1000);
const HEX = '0123456789abcdef'.repeat(4);

function refusal(text: string): string {
  const parsed = parseCaveat(text);
  return parsed.ok ? assert.fail(`${text} was accepted`) : parsed.reason;
}

test('a formatted caveat parses to the same caveat', () => {
  fc.assert(
    fc.property(arbitraryCaveat, (caveat) => {
      assert.deepEqual(parseCaveat(formatCaveat(caveat)), { ok: true, value: caveat });
    }),
    { numRuns },
  );
});

test('a parsed caveat has one spelling, and no text throws', () => {
  const key = fc.constantFrom(
    'audience',
    'scopes',
    'expires',
    'sent',
    'address',
    'name',
    'tenant',
    'bytes',
    'rate',
    'ip',
    'body',
    'x',
  );
  const op = fc.constantFrom('=', '<', '<=', '^=', 'in', '>', '');
  const value = fc.oneof(
    fc.string(),
    fc.constantFrom('1', '01', '1/s', 'storage', 'b3:0', '::/0', '10.0.0.0/8', `b3:${HEX}`),
  );
  const near = fc.tuple(key, op, value).map((words) => words.join(' '));
  fc.assert(
    fc.property(fc.oneof(near, fc.string({ unit: 'binary-ascii' })), (text) => {
      const parsed = parseCaveat(text);
      if (parsed.ok) assert.equal(formatCaveat(parsed.value), text);
      else assert.match(parsed.reason, /^(unknown|malformed) caveat "/);
    }),
    { numRuns: numRuns * 5 },
  );
});

test('the examples of the grammar are read', () => {
  const read = (text: string): unknown => {
    const parsed = parseCaveat(text);
    return parsed.ok ? parsed.value : parsed.reason;
  };
  assert.deepEqual(read('audience = storage'), { key: 'audience', service: 'storage' });
  assert.deepEqual(read('scopes in storage:get,storage:put'), {
    key: 'scopes',
    scopes: ['storage:get', 'storage:put'],
  });
  assert.deepEqual(read('expires < 1767225600000'), { key: 'expires', at_ms: 1767225600000 });
  assert.deepEqual(read('sent < 1767225600000'), { key: 'sent', at_ms: 1767225600000 });
  assert.deepEqual(read('address ^= b3:00ff'), { key: 'address', prefix: 'b3:00ff' });
  assert.deepEqual(read('name ^= holiday photos/'), { key: 'name', prefix: 'holiday photos/' });
  assert.deepEqual(read('label ^= ron/audience/'), { key: 'label', prefix: 'ron/audience/' });
  assert.deepEqual(read('tenant = acme'), { key: 'tenant', tenant: 'acme' });
  assert.deepEqual(read('bytes <= 1048576'), { key: 'bytes', body_bytes_max: 1048576 });
  assert.deepEqual(read('rate <= 10/s'), { key: 'rate', count: 10, period_ms: 1000 });
  assert.deepEqual(read('rate <= 600/m'), { key: 'rate', count: 600, period_ms: 60_000 });
  assert.deepEqual(read(`body = sha256:${HEX}`), { key: 'body', algorithm: 'sha256', hex: HEX });
  assert.deepEqual(read(`body = b3:${HEX}`), { key: 'body', algorithm: 'b3', hex: HEX });
  assert.deepEqual(read('ip in 10.0.0.0/8,2001:db8::/32'), {
    key: 'ip',
    networks: [parseNetwork('10.0.0.0/8'), parseNetwork('2001:db8::/32')],
  });
});

test('text outside the grammar is refused, and the reason states the expected form', () => {
  for (const text of [
    '',
    ' ',
    'time < 5',
    'constructor = x',
    '__proto__ = x',
    'Audience = storage',
    '\u{feff}tenant = a',
  ]) {
    assert.match(refusal(text), /^unknown caveat/);
  }
  const malformed = {
    audience: ['= nowhere', ' = storage', '== storage', '= storage ', ''],
    scopes: ['in ', 'in a:b,', 'in a:b,a:b', 'in a:*', 'in A:b', 'in a:b, c:d', '= a:b', 'in'],
    sent: ['< 01', '<= 1'],
    expires: ['< 01', '< -1', '< 1e9', '< 9007199254740992', '< 1.5', '<= 1', '< '],
    address: ['^= b4:', '^= ', '^= b3:AB', `^= b3:${HEX}0`, '= b3:00'],
    name: ['^= ', '^=  a', '^= a ', '^= a\nb', '^= a\u202eb', '^= a\ud800', `^= ${'n'.repeat(513)}`],
    label: ['^= ', '= a'],
    tenant: ['= ', '= a b', '= é', `= ${'t'.repeat(65)}`],
    bytes: ['<= ', '<= 1k', '< 5'],
    rate: ['<= 0/s', '<= 1/h', '<= 1', '<= 01/s', '<= 1000001/s', '<= 1/s/m'],
    ip: [
      'in ',
      'in 10.0.0.1/8',
      'in 10.0.0.0/33',
      'in ::/129',
      'in ::1/0',
      'in 1.2.3',
      'in 010.0.0.0/8',
      'in 1.2.3.4,',
      'in ::ffff:10.0.0.0/104',
      'in fe80::1%eth0',
      'in 1.2.3.4 ',
      'in ::ffff:1.2.3.4',
      'in 1.2.3.4,1.2.3.4',
    ],
    body: ['= sha256:00', `= md5:${HEX}`, `= ${HEX}`, `= sha256:${HEX.toUpperCase()}`],
  };
  for (const [key, rests] of Object.entries(malformed)) {
    for (const rest of rests)
      assert.match(refusal(`${key} ${rest}`), /^malformed caveat ".*"; expected "\w+ (=|<|<=|\^=|in) " and /);
  }
  const scopes = (count: number): string =>
    Array.from(
      { length: count },
      (_, at) => `storage:${String.fromCharCode(97 + (at % 26), 97 + Math.floor(at / 26))}`,
    ).join(',');
  assert.equal(parseCaveat(`scopes in ${scopes(32)}`).ok, true);
  assert.match(refusal(`scopes in ${scopes(33)}`), /^malformed/);
});

test('a refusal shows external text escaped and truncated', () => {
  assert.equal(refusal('evil\u001b[2J'), 'unknown caveat "evil\\u001b[2J"');
  assert.ok(refusal('x'.repeat(1000)).length < 100);
});

const ipv4 = fc.tuple(fc.nat(255), fc.nat(255), fc.nat(255), fc.nat(255)).map((parts) => parts.join('.'));
/** Its first group is never 0, so that it is not a mapped IPv4 address. */
const ipv6 = fc
  .tuple(
    fc.integer({ min: 2, max: 0xffff }),
    fc.array(fc.oneof(fc.constant(0), fc.nat(0xffff)), { minLength: 7, maxLength: 7 }),
  )
  .map(([first, rest]) => [first, ...rest]);

/** The same address with all but its first bits zero. */
function masked(groups: readonly number[], bits: number): string {
  const kept = groups.map((group, at) => {
    const host_bits = Math.min(16, Math.max(0, 16 * (at + 1) - bits));
    return Math.floor(group / 2 ** host_bits) * 2 ** host_bits;
  });
  return kept.map((group) => group.toString(16)).join(':');
}

test('membership in an IPv6 network agrees with the runtime', () => {
  fc.assert(
    fc.property(ipv6, fc.nat(128), fc.option(ipv6), fc.nat(7), (groups, bits, other, change) => {
      const net = masked(groups, bits);
      const network = parseNetwork(`${net}/${bits}`);
      assert.ok(network, net);
      const block = new BlockList();
      block.addSubnet(net, bits, 'ipv6');
      const address = (other ?? groups.with(change, groups[change]! ^ 1)).map((group) => group.toString(16)).join(':');
      assert.equal(inNetworks(address, [network]), block.check(address, 'ipv6'));
    }),
    { numRuns: numRuns * 3 },
  );
});

test('an IPv4 network holds exactly the addresses that share its bits', () => {
  fc.assert(
    fc.property(ipv4, fc.nat(32), fc.nat(31), (address, bits, flip) => {
      const value = address.split('.').reduce((sum, part) => sum * 256 + Number(part), 0);
      const dotted = (ip: number): string => [24, 16, 8, 0].map((shift) => Math.floor(ip / 2 ** shift) % 256).join('.');
      const size = 2 ** (32 - bits);
      const network = parseNetwork(`${dotted(Math.floor(value / size) * size)}/${bits}`);
      assert.ok(network);
      assert.equal(inNetworks(address, [network]), true);
      const bit = 2 ** (31 - flip);
      const flipped = Math.floor(value / bit) % 2 === 0 ? value + bit : value - bit;
      assert.equal(inNetworks(dotted(flipped), [network]), flip >= bits);
    }),
    { numRuns },
  );
});

test('all spellings of an address are equal', () => {
  const only = (text: string): NonNullable<ReturnType<typeof parseNetwork>>[] => {
    const network = parseNetwork(text);
    return network === undefined ? [] : [network];
  };
  assert.ok(inNetworks('::ffff:10.1.2.3', only('10.0.0.0/8')));
  assert.ok(inNetworks('::ffff:0a01:0203', only('10.1.2.3')));
  assert.ok(inNetworks('2001:DB8:0:0::1', only('2001:db8::/64')));
  assert.ok(inNetworks('fe80::1%eth0', only('fe80::/10')));
  assert.ok(inNetworks('64:ff9b::192.0.2.33', only('64:ff9b::c000:221')));
  assert.ok(inNetworks('::1', only('::1')));
  assert.ok(!inNetworks('::1', only('0.0.0.0/0')));
  assert.ok(!inNetworks('127.0.0.1', only('::/0')));
  for (const no of ['', 'localhost', '1.2.3', '1.2.3.4.5', ':::', '%eth0', '1.2.3.4%x']) {
    assert.ok(!inNetworks(no, [...only('0.0.0.0/0'), ...only('::/0')]), no);
  }
});
