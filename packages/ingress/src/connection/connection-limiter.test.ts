import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Admission, RonError } from '@ron/kernel';
import { ConnectionLimiter } from './connection-limiter.ts';
import type { Ticket } from './connection.ts';

const LIMITS = { inflight_max: 8, connections_max: 1000, connections_per_ip_max: 4 };

function admitted(limiter: ConnectionLimiter, ips: readonly string[]): Ticket[] {
  return ips.map((ip) => limiter.admit(ip)).filter((ticket): ticket is Ticket => !(ticket instanceof RonError));
}

test('all addresses of one /64 share its limit and its connections on probation', () => {
  const limiter = new ConnectionLimiter(new Admission(LIMITS), () => false);
  const ips = Array.from({ length: 100 }, (_unused, n) => `2001:db8:1:1::${(n % 40).toString(16)}`);
  const tickets = admitted(limiter, ips);
  assert.equal(tickets.filter(({ probation }) => !probation).length, 4);
  assert.equal(tickets.filter(({ probation }) => probation).length, 8);
  const others = admitted(limiter, Array.from<string>({ length: 5 }).fill('192.0.2.7'));
  assert.equal(others.at(-1)?.probation, true, 'another address has its own limit');
  for (const ticket of tickets) limiter.release(ticket);
  const again = admitted(limiter, ips);
  assert.equal(again.length, 12, 'each release frees one slot');
});
