import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { ADDRESSES_IDLE_MAX, addressGroup } from './admission-addresses.ts';
import { Admission, type AdmissionInit } from './admission.ts';
import { ERRORS, RonError } from '../errors.ts';
import { VirtualSched } from '../virtual-sched.ts';

const INIT: AdmissionInit = { inflight_max: 3, connections_max: 5, connections_per_ip_max: 2 };
const NONE = {
  inflight_limit: 0,
  address_limit: 0,
  rate_limited: 0,
  address_rate_limited: 0,
  conn_limit: 0,
  conns_max: 0,
};

function enter(admission: Admission, times: number): string[] {
  return Array.from({ length: times }, () => admission.tryEnter());
}

test('as many requests are let in as inflight_max allows, and each that leaves makes room for one', () => {
  const admission = new Admission(INIT);
  assert.deepEqual(enter(admission, 4), ['ok', 'ok', 'ok', 'inflight_limit']);
  admission.leave();
  assert.deepEqual(enter(admission, 2), ['ok', 'inflight_limit']);
  assert.equal(admission.inflight, 3);
  assert.deepEqual(admission.refusals, { ...NONE, inflight_limit: 2 });
});

test('leaving more often than entering is a defect', () => {
  const admission = new Admission(INIT);
  admission.tryEnter();
  admission.leave();
  assert.throws(() => admission.leave(), RonError);
});

test('accepted work takes its place back even when all are taken, and newcomers wait for both', () => {
  const admission = new Admission({ ...INIT, inflight_max: 1 });
  admission.tryEnter();
  admission.suspend();
  assert.equal(admission.tryEnter(), 'ok');
  admission.resume();
  assert.equal(admission.inflight, 2);
  admission.leave();
  assert.equal(admission.tryEnter(), 'inflight_limit');
});

test('the rate lets the burst in at once, then one request for each token', async () => {
  const clock = new VirtualSched();
  await clock.during(() => {
    const admission = new Admission({ ...INIT, inflight_max: 1000, rps_limit: 500, rps_burst: 250 });
    const let_in = enter(admission, 300).filter((result) => result === 'ok').length;
    assert.equal(let_in, 250);
    assert.equal(admission.refusals.rate_limited, 50);
    assert.equal(admission.retryAfter_ms(), 2);
    clock.advanceSync(2);
    assert.deepEqual(enter(admission, 2), ['ok', 'rate_limited']);
    assert.equal(admission.inflight, 251);
  });
});

test('a request refused for being one too many in flight costs no token', async () => {
  const clock = new VirtualSched();
  await clock.during(() => {
    const admission = new Admission({ ...INIT, inflight_max: 1, rps_limit: 10, rps_burst: 2 });
    assert.deepEqual(enter(admission, 3), ['ok', 'inflight_limit', 'inflight_limit']);
    admission.leave();
    assert.equal(admission.tryEnter(), 'ok');
    admission.leave();
    assert.equal(admission.tryEnter(), 'rate_limited');
    assert.equal(admission.inflight, 0);
  });
});

test('without a rate there is none', () => {
  const admission = new Admission({ ...INIT, inflight_max: 1e6 });
  assert.ok(enter(admission, 10_000).every((result) => result === 'ok'));
  assert.equal(admission.retryAfter_ms(), 0);
});

test('connections are limited in all and per address, each with its own code and counter', () => {
  const admission = new Admission(INIT);
  const ips = ['192.0.2.1', '192.0.2.1', '192.0.2.1', '192.0.2.2', '192.0.2.3', '192.0.2.4', '192.0.2.5'];
  assert.deepEqual(
    ips.map((ip) => admission.tryConnect(ip)),
    ['ok', 'ok', 'conn_limit', 'ok', 'ok', 'ok', 'conns_max'],
  );
  assert.deepEqual(admission.refusals, { ...NONE, conn_limit: 1, conns_max: 1 });
  for (const code of Object.keys(NONE)) assert.ok(Object.hasOwn(ERRORS, code), `${code} is in the error table`);
  admission.disconnect('192.0.2.1');
  assert.equal(admission.tryConnect('192.0.2.1'), 'ok');
});

test('the last connection of an address takes its entry with it, and unknown ones are a defect', () => {
  const admission = new Admission(INIT);
  admission.tryConnect('192.0.2.1');
  admission.tryConnect('::ffff:192.0.2.1');
  assert.equal(admission.addresses, 1);
  admission.disconnect('192.0.2.1');
  assert.throws(() => admission.disconnect('192.0.2.9'), RonError);
  assert.equal(admission.connections, 1, 'a refused call changes nothing');
  admission.disconnect('::ffff:c000:201');
  assert.deepEqual([admission.connections, admission.addresses], [0, 0]);
  assert.throws(() => admission.disconnect(), RonError);
});

test('a connection without an address, or one that no longer counts for it, holds a place among all', () => {
  const admission = new Admission({ ...INIT, connections_per_ip_max: 1 });
  assert.deepEqual([admission.tryConnect('192.0.2.1'), admission.tryConnect('192.0.2.1')], ['ok', 'conn_limit']);
  admission.uncount('192.0.2.1');
  assert.equal(admission.tryConnect('192.0.2.1'), 'ok');
  assert.deepEqual([admission.tryConnect(), admission.connections, admission.addresses], ['ok', 3, 1]);
  admission.disconnect();
  admission.disconnect();
  admission.disconnect('192.0.2.1');
  assert.deepEqual([admission.connections, admission.addresses], [0, 0]);
});

test('an address takes its share of the in-flight places, and another address the rest', () => {
  const admission = new Admission({ ...INIT, inflight_per_ip_max: 2 });
  const [one, two] = [admission.hold('192.0.2.1'), admission.hold('192.0.2.2')];
  const results = [one, one, one, two, two].map((address) => admission.tryEnter(address));
  assert.deepEqual(results, ['ok', 'ok', 'address_limit', 'ok', 'inflight_limit']);
  assert.deepEqual(admission.refusals, { ...NONE, address_limit: 1, inflight_limit: 1 });
  admission.leave(one);
  assert.equal(admission.tryEnter(one), 'ok');
  assert.equal(admission.hold('::ffff:192.0.2.1'), one, 'every spelling is the same address');
});

test('the reserve is for internal callers only, who are not counted per address', () => {
  const admission = new Admission({ ...INIT, inflight_reserve: 1, inflight_per_ip_max: 1 });
  const results = [
    admission.tryEnter(undefined, 'internal'),
    admission.tryEnter(admission.hold('192.0.2.1')),
    admission.hasRoom(admission.hold('192.0.2.2')),
    admission.tryEnter(admission.hold('192.0.2.2')),
    admission.tryEnter(),
    admission.hasRoom(undefined, 'internal'),
    admission.tryEnter(undefined, 'internal'),
    admission.tryEnter(undefined, 'internal'),
  ];
  const expected = ['ok', 'ok', false, 'inflight_limit', 'inflight_limit', true, 'ok', 'inflight_limit'];
  assert.deepEqual(results, expected);
});

test('a request that waits in a queue counts for its address but holds no place', () => {
  const admission = new Admission({ ...INIT, inflight_max: 1, inflight_per_ip_max: 1 });
  const [one, two] = [admission.hold('192.0.2.1'), admission.hold('192.0.2.2')];
  assert.equal(admission.tryEnter(one), 'ok');
  admission.suspend();
  assert.deepEqual([admission.tryEnter(one), admission.tryEnter(two)], ['address_limit', 'ok']);
  admission.resume();
  assert.equal(admission.inflight, 2);
  admission.leave(one);
  admission.leave(two);
  assert.deepEqual([admission.inflight, one.inflight, two.inflight], [0, 0, 0]);
});

test('one address uses up its own rate and nothing of the common rate beyond it', async () => {
  const clock = new VirtualSched();
  await clock.during(() => {
    const init = { ...INIT, inflight_max: 100, rps_limit: 10, rps_burst: 5, rps_limit_per_ip: 1, rps_burst_per_ip: 2 };
    const admission = new Admission(init);
    const [one, two] = [admission.hold('192.0.2.1'), admission.hold('192.0.2.2')];
    const tries = [one, one, one, two, two, two].map((address) => admission.tryEnter(address));
    assert.deepEqual(tries, ['ok', 'ok', 'address_rate_limited', 'ok', 'ok', 'address_rate_limited']);
    assert.equal(admission.tryEnter(undefined, 'internal'), 'ok', 'refused requests took no common token');
    assert.equal(admission.tryEnter(undefined, 'internal'), 'rate_limited');
    assert.equal(admission.retryAfter_ms(one), 1000);
    clock.advanceSync(1000);
    assert.equal(admission.tryEnter(one), 'ok');
  });
});

test('an address is forgotten when it holds nothing and its bucket is full again, not before', async () => {
  const clock = new VirtualSched();
  await clock.during(() => {
    const admission = new Admission({ ...INIT, inflight_max: 1e9, rps_limit_per_ip: 1, rps_burst_per_ip: 2 });
    const visit = (ip: string): string => {
      const address = admission.hold(ip);
      const result = admission.tryEnter(address);
      admission.release(address);
      if (result === 'ok') admission.leave(address);
      return result;
    };
    assert.deepEqual(
      [visit('192.0.2.1'), visit('192.0.2.1'), visit('192.0.2.1')],
      ['ok', 'ok', 'address_rate_limited'],
    );
    assert.equal(admission.addresses, 1, 'its debt is remembered');
    clock.advanceSync(2000);
    visit('192.0.2.2');
    assert.equal(admission.addresses, 1, 'paid');
    for (let n = 0; n < ADDRESSES_IDLE_MAX + 100; n++) visit(`10.${n >> 16}.${(n >> 8) & 255}.${n & 255}`);
    assert.equal(admission.addresses, ADDRESSES_IDLE_MAX, 'the table is bounded');
    // The entry that has been idle longest is used again: it is not evicted while it is held.
    const oldest = '10.0.0.100';
    const held = admission.hold(oldest);
    for (let n = 0; n < ADDRESSES_IDLE_MAX + 100; n++) visit(`11.${n >> 16}.${(n >> 8) & 255}.${n & 255}`);
    assert.equal(admission.hold(oldest), held);
  });
});

test('an entry stays the same while anything holds it, and goes with the last holder', () => {
  const admission = new Admission(INIT);
  const address = admission.hold('192.0.2.1');
  admission.tryConnect('192.0.2.1');
  admission.tryEnter(address);
  admission.release(address);
  admission.disconnect('192.0.2.1');
  assert.equal(admission.hold('192.0.2.1'), address, 'its request still runs');
  admission.leave(address);
  assert.equal(admission.addresses, 1);
  admission.release(address);
  assert.equal(admission.addresses, 0);
  assert.throws(() => admission.release(address), RonError);
  assert.throws(() => admission.leave(address), RonError);
});

test('addresses count as IPv4 or as a /64 of IPv6, however they are written', () => {
  const same: [string, string][] = [
    ['192.0.2.1', '192.0.2.1'],
    ['::ffff:192.0.2.1', '192.0.2.1'],
    ['::FFFF:c000:0201', '192.0.2.1'],
    ['2001:db8:1:2:3:4:5:6', '2001:db8:1:2::/64'],
    ['2001:DB8:0001:0002::9', '2001:db8:1:2::/64'],
    ['2001:db8::1', '2001:db8:0:0::/64'],
    ['2001:db8:1::2:3:4:5', '2001:db8:1:0::/64'],
    ['fe80::1%eth0', 'fe80:0:0:0::/64'],
    ['::ffff:192.0.2.1%eth0', '192.0.2.1'],
    ['::1', '0:0:0:0::/64'],
    ['::', '0:0:0:0::/64'],
    ['1::', '1:0:0:0::/64'],
    ['::2:3:4:5:6:7:8', '0:2:3:4::/64'],
    ['64:ff9b::192.0.2.1', '64:ff9b:0:0::/64'],
  ];
  for (const [ip, group] of same) assert.equal(addressGroup(ip), group, ip);
});

test('property: every spelling of an IPv6 address falls into the /64 of its eight groups', () => {
  const groups = fc.array(fc.oneof(fc.constant(0), fc.nat(0xffff)), { minLength: 8, maxLength: 8 });
  fc.assert(
    fc.property(groups, fc.nat(7), fc.boolean(), (parts, at, upper) => {
      const hex = parts.map((part) => part.toString(16));
      const full = parts.map((part) => part.toString(16).padStart(4, '0')).join(':');
      const isMapped = parts.slice(0, 5).every((part) => part === 0) && parts[5] === 0xffff;
      fc.pre(!isMapped);
      const expected = `${hex.slice(0, 4).join(':')}::/64`;
      assert.equal(addressGroup(upper ? full.toUpperCase() : full), expected);
      // Any run of zeros may be written as '::'.
      let end = at;
      while (end < 8 && parts[end] === 0) end++;
      if (end === at) return;
      assert.equal(addressGroup(`${hex.slice(0, at).join(':')}::${hex.slice(end).join(':')}`), expected);
    }),
  );
});

test('property: limits hold and counts return to zero for every sequence of calls', async () => {
  const step = fc.oneof(
    fc.record({ do: fc.constantFrom('enter', 'leave', 'connect', 'disconnect'), n: fc.nat(3) }),
    fc.record({ do: fc.constant('advance'), n: fc.nat(100) }),
  );
  const init = fc.record({ rps_limit: fc.integer({ min: 1, max: 500 }), rps_burst: fc.integer({ min: 1, max: 300 }) });
  await fc.assert(
    fc.asyncProperty(init, fc.array(step, { minLength: 20, maxLength: 300 }), async (rate, steps) => {
      const clock = new VirtualSched();
      await clock.during(() => {
        const admission = new Admission({ ...INIT, ...rate });
        const open: string[] = [];
        let let_in = 0;
        for (const { do: what, n } of steps) {
          if (what === 'advance') clock.advanceSync(n);
          if (what === 'enter' && admission.tryEnter() === 'ok') let_in++;
          if (what === 'leave' && admission.inflight > 0) admission.leave();
          if (what === 'connect' && admission.tryConnect(`192.0.2.${n}`) === 'ok') open.push(`192.0.2.${n}`);
          if (what === 'disconnect' && open.length > 0) admission.disconnect(open.splice(n % open.length, 1)[0]);
          assert.ok(admission.inflight <= 3);
          assert.ok(let_in <= rate.rps_burst + (rate.rps_limit * clock.now_ms()) / 1000);
          assert.equal(admission.connections, open.length);
          assert.ok(open.length <= 5);
          assert.equal(admission.addresses, new Set(open).size);
          for (const ip of open) assert.ok(open.filter((other) => other === ip).length <= 2);
        }
        for (const ip of open) admission.disconnect(ip);
        assert.deepEqual([admission.connections, admission.addresses], [0, 0]);
      });
    }),
  );
});

test('property: no window lets in more than the rate and the burst, tokens in hand included', async () => {
  const all = fc.tuple(
    fc.integer({ min: 1, max: 1000 }),
    fc.integer({ min: 1, max: 600 }),
    fc.array(fc.record({ wait_ms: fc.nat(3000), tries: fc.nat(700) }), { maxLength: 8 }),
  );
  await fc.assert(
    fc.asyncProperty(all, async ([rps_limit, rps_burst, rounds]) => {
      const clock = new VirtualSched();
      await clock.during(() => {
        const admission = new Admission({ ...INIT, inflight_max: 1e9, rps_limit, rps_burst });
        const seen: { at_ms: number; count: number }[] = [];
        for (const { wait_ms, tries } of rounds) {
          clock.advanceSync(wait_ms);
          const count = enter(admission, tries).filter((result) => result === 'ok').length;
          seen.push({ at_ms: clock.now_ms(), count });
          for (const [index, first] of seen.entries()) {
            const sum = seen.slice(index).reduce((total, one) => total + one.count, 0);
            assert.ok(sum <= rps_burst + (rps_limit * (clock.now_ms() - first.at_ms)) / 1000);
          }
        }
        // After a pause at most a sixteenth of the burst is missing.
        clock.advanceSync(1e7);
        const let_in = enter(admission, rps_burst).filter((result) => result === 'ok').length;
        assert.ok(let_in >= rps_burst - rps_burst / 16 && let_in <= rps_burst);
      });
    }),
  );
});

test('limits that make no sense are refused', () => {
  for (const limit of [0, -1, 1.5, Number.NaN, Infinity]) {
    assert.throws(() => new Admission({ ...INIT, inflight_max: limit }), RonError);
    assert.throws(() => new Admission({ ...INIT, connections_max: limit }), RonError);
    assert.throws(() => new Admission({ ...INIT, connections_per_ip_max: limit }), RonError);
    assert.throws(() => new Admission({ ...INIT, rps_limit: 10, rps_burst: limit }), RonError);
    assert.throws(() => new Admission({ ...INIT, rps_limit_per_ip: 10, rps_burst_per_ip: limit }), RonError);
    assert.throws(() => new Admission({ ...INIT, inflight_per_ip_max: limit }), RonError);
    if (limit !== 0) assert.throws(() => new Admission({ ...INIT, inflight_reserve: limit }), RonError);
  }
});
