import assert from 'node:assert/strict';
import { test } from 'node:test';
import { peerIdFromString } from '@libp2p/peer-id';
import { isRonError } from '@ron/kernel';
import { VirtualSched } from '@ron/kernel/testing';
import { Key } from 'interface-datastore';
import { base32 } from 'multiformats/bases/base32';
import { nodeKeyOf } from '../../node-key.ts';
import { endpointOf, endpointText, endpointUrl, storageAddr } from './addresses.ts';
import { IndexDatastore } from './datastore.ts';
import { encodeRecord } from './message.ts';
import { MemoryDhtStore } from './testing/memory-dht-store.ts';
import { signedName } from './testing/test-names.ts';
import { keyOf } from './testing/test-node.ts';
import { multiaddr } from '@multiformats/multiaddr';

const HOUR_MS = 3_600_000;
const [self, peer] = [1, 2].map((byte) => nodeKeyOf(new Uint8Array(32).fill(byte)).peer_id) as [string, string];
const peerRow = (id: string): Key => new Key(`/peers/${peerIdFromString(id).toCID().toString()}`);
const prefix = `/dht/provider/${base32.baseEncode(keyOf('object'))}`;
const recordKey = (name: Uint8Array): Key => new Key(`/dht/record/${base32.baseEncode(name)}`, false);

async function open(store = new MemoryDhtStore()) {
  const init = { store, self, provides: async () => false, isAllowed: () => true, warn: () => assert.fail() };
  return await IndexDatastore.open(init);
}

async function providers(datastore: IndexDatastore): Promise<string[]> {
  return (await Array.fromAsync(datastore.query({ prefix }))).map(({ key }) => key.toString().slice(prefix.length + 1));
}

test('provider records expire after 48 hours, unless they are provided again', async () => {
  const clock = new VirtualSched();
  await clock.during(async () => {
    await using datastore = await open();
    await datastore.put(peerRow(peer), Buffer.from('addresses'));
    await datastore.put(new Key(`${prefix}/${peer}`), Buffer.from([1]));
    await clock.advance(47 * HOUR_MS);
    assert.deepEqual(await providers(datastore), [peer]);
    await datastore.put(new Key(`${prefix}/${peer}`), Buffer.from([1]));
    await clock.advance(47 * HOUR_MS);
    assert.deepEqual(await providers(datastore), [peer]);
    await clock.advance(2 * HOUR_MS);
    assert.deepEqual(await providers(datastore), []);
  });
});

test('name records expire with not_after, at the latest after 48 hours; only a newer record replaces one', async () => {
  const clock = new VirtualSched();
  await clock.during(async () => {
    await using datastore = await open();
    const now_s = clock.wall_ms() / 1000;
    const recordOf = (seq: number, life_h: number) => {
      const { key, value } = signedName('n', seq, { not_after: now_s + life_h * 3600 });
      return [recordKey(key), encodeRecord({ key, value, received: '' })] as const;
    };
    await datastore.put(...recordOf(2, 1));
    await assert.rejects(datastore.put(...recordOf(1, 9)), (error) => isRonError(error, 'unprocessable'));
    await datastore.put(...recordOf(2, 1));
    assert.ok(await datastore.has(recordOf(2, 1)[0]));
    await clock.advance(HOUR_MS);
    await assert.rejects(datastore.get(recordOf(2, 1)[0]), { name: 'NotFoundError' });
    await datastore.put(...recordOf(3, 1000));
    await clock.advance(49 * HOUR_MS);
    assert.ok(!(await datastore.has(recordOf(3, 1)[0])));
  });
});

test('peers are written behind, bounded in number, and read again; a provider without a peer is not listed', async () => {
  const clock = new VirtualSched();
  await clock.during(async () => {
    const store = new MemoryDhtStore();
    {
      await using datastore = await open(store);
      await datastore.put(peerRow(peer), Buffer.from('addresses'));
      assert.equal(store.rows.size, 0);
      await clock.advance(250);
      assert.equal(store.rows.size, 1);
      await datastore.put(new Key(`${prefix}/${peer}`), Buffer.from([1]));
    }
    await using again = await open(store);
    assert.deepEqual(await providers(again), [peer]);
    for (let i = 0; i < 4096; i++) await again.put(new Key(`/peers/${i}`), Buffer.from([1]));
    assert.ok(!(await again.has(peerRow(peer))));
    assert.equal((await Array.fromAsync(again.query({ prefix: '/peers/' }))).length, 4096);
    assert.deepEqual(await providers(again), []);
  });
});

test('addresses: only literal IPs, with and without /http and /p2p', () => {
  const text = (addr: string): string | undefined => {
    const endpoint = endpointOf(multiaddr(addr).bytes);
    return endpoint && `${endpointText(endpoint)} ${endpointUrl(endpoint)}`;
  };
  assert.equal(text('/ip4/1.2.3.4/tcp/80'), '/ip4/1.2.3.4/tcp/80 http://1.2.3.4:80');
  assert.equal(
    text(`/ip6/2001:db8::1/tcp/7101/http/p2p/${peer}`),
    '/ip6/2001:db8::1/tcp/7101/http http://[2001:db8::1]:7101',
  );
  for (const other of [
    '/dns4/example.org/tcp/80/http',
    '/ip4/1.2.3.4/udp/80',
    '/ip4/1.2.3.4/tcp/80/https',
    '/ip4/1.2.3.4/tcp/80/ws',
  ])
    assert.equal(text(other), undefined, other);
  assert.equal(endpointOf(Buffer.alloc(0)), undefined);
  assert.equal(endpointOf(Buffer.from([4, 1, 2, 3])), undefined);
  assert.equal(storageAddr('http://[::1]:7101/'), '/ip6/::1/tcp/7101/http');
  assert.equal(storageAddr('http://192.0.2.1'), '/ip4/192.0.2.1/tcp/80/http');
  for (const other of [
    'https://192.0.2.1',
    'http://example.org:7101',
    'http://192.0.2.1/x',
    'http://u@192.0.2.1',
    'nonsense',
  ])
    assert.equal(storageAddr(other), undefined, other);
});
