import assert from 'node:assert/strict';
import { test } from 'node:test';
import { parsePeerAddress } from './peer-address.ts';

const ID = '12D3KooWCiFmnCAoSgocp4d9Koeem9x4AS3n27TLXLAeAMaYdn3h';

test('addresses of peers are parsed', () => {
  const parsed = parsePeerAddress(`/ip4/192.0.2.1/tcp/7108/p2p/${ID}`);
  assert.deepEqual(parsed, { kind: 'ip', host: '192.0.2.1', port: 7108, peer_id: ID });
  assert.equal(parsePeerAddress(`/ip6/2001:db8::1/tcp/65535/p2p/${ID}`)?.host, '2001:db8::1');
  assert.equal(parsePeerAddress(`/dns4/node.example/tcp/1/p2p/${ID}`)?.kind, 'dns');
});

test('malformed addresses of peers are refused', () => {
  const bad = [
    '/ip4/999.1.1.1/tcp/7108',
    '/ip4/1.1.1/tcp/7108',
    '/ip4/1.1.1.1./tcp/7108',
    '/ip4/::1/tcp/7108',
    '/ip6/127.0.0.1/tcp/7108',
    '/ip6/1::2::3/tcp/7108',
    '/ip6/12345::1/tcp/7108',
    '/ip4/127.0.0.1/tcp/99999',
    '/ip4/127.0.0.1/tcp/0',
    '/ip4/127.0.0.1/udp/7108',
    '/dns4/a:b/tcp/7108',
  ];
  for (const addr of bad) assert.equal(parsePeerAddress(`${addr}/p2p/${ID}`), undefined, addr);
  assert.equal(parsePeerAddress('/ip4/127.0.0.1/tcp/7108'), undefined);
  assert.equal(parsePeerAddress(`/ip4/127.0.0.1/tcp/7108/p2p/${ID}\n`), undefined);
});
