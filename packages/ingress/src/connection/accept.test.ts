import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Admission, RonError } from '@ron/kernel';
import { Gatekeeper } from './accept.ts';
import type { Ticket } from './connection.ts';

const LIMITS = { inflight_max: 8, connections_max: 1000, connections_per_ip_max: 4 };

function admitted(gatekeeper: Gatekeeper, ips: readonly string[]): Ticket[] {
  return ips.map((ip) => gatekeeper.admit(ip)).filter((ticket): ticket is Ticket => !(ticket instanceof RonError));
}

test('all addresses of one /64 share its limit and its connections on probation', () => {
  const gatekeeper = new Gatekeeper(new Admission(LIMITS), () => false);
  const ips = Array.from({ length: 100 }, (_unused, n) => `2001:db8:1:1::${(n % 40).toString(16)}`);
  const tickets = admitted(gatekeeper, ips);
  assert.equal(tickets.filter(({ probation }) => !probation).length, 4);
  assert.equal(tickets.filter(({ probation }) => probation).length, 8);
  const others = admitted(gatekeeper, Array.from<string>({ length: 5 }).fill('192.0.2.7'));
  assert.equal(others.at(-1)?.probation, true, 'another address at its limit gets its own');
  for (const ticket of tickets) gatekeeper.release(ticket);
  const again = admitted(gatekeeper, ips);
  assert.equal(again.length, 12, 'each release makes room for one');
});
