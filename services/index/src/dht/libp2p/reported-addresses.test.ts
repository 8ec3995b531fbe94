import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Connection } from '@libp2p/interface';
import { multiaddr } from '@multiformats/multiaddr';
import { dialableFrom } from './reported-addresses.ts';
import { endpointOf } from './wire/addresses.ts';

/** Whether a reporter that is connected from `remote` may name an address. */
function isDialable(addr: string, remote: string): boolean {
  const connection = { remoteAddr: multiaddr(remote) } as Connection;
  return dialableFrom(() => [connection])(endpointOf(multiaddr(addr).bytes)!);
}

test('local addresses are dialed only for reporters that are connected from such an address', () => {
  const [far, here, link] = ['/ip4/10.0.0.9/tcp/7108', '/ip4/127.0.0.1/tcp/40000', '/ip6/fe80::9/tcp/7108'];
  for (const loopback of ['/ip4/127.0.0.1/tcp/22', '/ip4/127.1.2.3/tcp/22', '/ip6/::1/tcp/22']) {
    assert.deepEqual(
      [far, link, here].map((remote) => isDialable(loopback, remote)),
      [false, false, true],
      loopback,
    );
  }
  for (const local of ['/ip6/fe80::1/tcp/22', '/ip4/169.254.7.7/tcp/22']) {
    assert.deepEqual(
      [far, here, link].map((remote) => isDialable(local, remote)),
      [false, false, true],
      local,
    );
  }
  for (const usual of [
    '/ip4/10.0.0.8/tcp/7108',
    '/ip4/192.168.1.2/tcp/7108',
    '/ip4/8.8.8.8/tcp/7108',
    '/ip6/2001:4860::8/tcp/7108',
  ]) {
    assert.ok(isDialable(usual, far), usual);
  }
});

test('addresses of metadata services, and those that no node can have, are never dialed', () => {
  for (const host of [
    'ip4/169.254.169.254',
    'ip4/0.0.0.0',
    'ip4/224.0.0.1',
    'ip4/255.255.255.255',
    'ip6/::',
    'ip6/::ffff:127.0.0.1',
    'ip6/fd00:ec2::254',
  ]) {
    for (const remote of ['/ip4/10.0.0.9/tcp/1', '/ip4/127.0.0.1/tcp/1', '/ip6/fe80::9/tcp/1']) {
      assert.equal(isDialable(`/${host}/tcp/80`, remote), false, host);
    }
  }
});
