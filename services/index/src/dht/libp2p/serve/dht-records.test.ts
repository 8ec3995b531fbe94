import assert from 'node:assert/strict';
import { test } from 'node:test';
import { peerIdFromString } from '@libp2p/peer-id';
import { multiaddr } from '@multiformats/multiaddr';
import { isRonError } from '@ron/kernel';
import { VirtualSched } from '@ron/kernel/testing';
import { nodeKeyOf } from '../../../node-key.ts';
import { endpointOf, endpointText, endpointUrl, storageAddr } from '../wire/addresses.ts';
import { DhtRecords } from './dht-records.ts';
import { decodeRecord } from '../wire/message.ts';
import { PeerRows } from '../peer-rows.ts';
import { MemoryDhtStore } from '../testing/memory-dht-store.ts';
import { signedName, TestNames, type SignedValue } from '../testing/test-names.ts';
import { keyOf } from '../testing/test-node.ts';

const HOUR_MS = 3_600_000;
const key = keyOf('object');
const [self, peer] = [1, 2].map((byte) => nodeKeyOf(new Uint8Array(32).fill(byte)).peer_id) as [string, string];
const isRefused = (error: unknown): boolean => isRonError(error, 'unprocessable');

const openRecords = (init: Partial<ConstructorParameters<typeof DhtRecords>[0]> = {}): DhtRecords =>
  new DhtRecords({ store: new MemoryDhtStore(), names: new TestNames(), provides: async () => false, self, ...init });

test('provider records expire after 48 hours, unless they are provided again', async () => {
  const clock = new VirtualSched();
  await clock.during(async () => {
    await using records = openRecords();
    await records.addProvider(key, peer);
    await clock.advance(47 * HOUR_MS);
    await records.addProvider(key, peer);
    await clock.advance(47 * HOUR_MS);
    assert.deepEqual(await records.providersOf(key), [peer]);
    await clock.advance(2 * HOUR_MS);
    assert.deepEqual(await records.providersOf(key), []);
  });
});

test('own objects are listed first; keys that are not sha2-256 multihashes are refused', async () => {
  await using records = openRecords({ provides: async (wanted) => Buffer.compare(wanted, key) === 0 });
  await records.addProvider(key, peer);
  assert.deepEqual(await records.providersOf(key), [self, peer]);
  const isBad = (error: unknown): boolean => isRonError(error, 'bad_request');
  await assert.rejects(records.providersOf(key.subarray(1)), isBad);
  await assert.rejects(records.addProvider(Buffer.alloc(34), peer), isBad);
});

test('name records expire with not_after, at the latest after 48 hours', async () => {
  const clock = new VirtualSched();
  await clock.during(async () => {
    await using records = openRecords();
    const now_s = clock.wall_ms() / 1000;
    const short = signedName('n', 1, { not_after: now_s + 3600 });
    await records.putRecord(short.key, short.value, peer);
    assert.ok(await records.getRecord(short.key));
    await clock.advance(HOUR_MS);
    assert.equal(await records.getRecord(short.key), undefined);
    await assert.rejects(records.putRecord(short.key, short.value, peer), isRefused);
    const long = signedName('n', 2, { not_after: now_s + 1000 * 3600 });
    await records.putRecord(long.key, long.value, peer);
    await clock.advance(47 * HOUR_MS);
    assert.ok(await records.getRecord(long.key));
    await clock.advance(2 * HOUR_MS);
    assert.equal(await records.getRecord(long.key), undefined);
  });
});

test('a lower seq never replaces a newer record, even if names forgot it; the same record is accepted again', async () => {
  await using records = openRecords({ names: { accepts: (...record) => new TestNames().accepts(...record) } });
  const [older, newer] = [signedName('n', 1), signedName('n', 2)];
  await Promise.allSettled([older, newer].map((one) => records.putRecord(one.key, one.value, peer)));
  await assert.rejects(records.putRecord(older.key, older.value, peer), isRefused);
  await records.putRecord(newer.key, newer.value, peer);
  await requireOnly(records, newer);
});

test('both records of a fork are kept and returned in turn, until a newer one replaces them', async () => {
  await using records = openRecords();
  const [left, right] = [signedName('n', 2, { ttl_s: 1 }), signedName('n', 2, { ttl_s: 2 })];
  for (const one of [left, right, left]) await records.putRecord(one.key, one.value, peer);
  const read = new Set<string>();
  for (let i = 0; i < 2; i++) read.add(valueOf(await records.getRecord(left.key)));
  assert.deepEqual(read, new Set([left, right].map(({ value }) => Buffer.from(value).toString('hex'))));
  const next = signedName('n', 3);
  await records.putRecord(next.key, next.value, peer);
  await requireOnly(records, next);
});

test('a record with moved_to is never replaced; a record beyond it is kept as its rival', async () => {
  const move = signedName('n', 2, { value: undefined, moved_to: 'cd'.repeat(32) });
  const [stolen, later] = [signedName('n', 5), signedName('n', 9)];
  for (const order of [
    [move, stolen, later],
    [stolen, move, later],
  ]) {
    // The rules of `Names` accept the move though its seq is lower.
    const names = { accepts: (...given: Parameters<TestNames['accepts']>) => new TestNames().accepts(...given) };
    await using records = openRecords({ names });
    for (const { key: name, value } of order) await records.putRecord(name, value, peer);
    const read = [await records.getRecord(move.key), await records.getRecord(move.key)].map(valueOf);
    assert.deepEqual(read, [hexOf(move), hexOf(later)]);
  }
});

const hexOf = ({ value }: SignedValue): string => Buffer.from(value).toString('hex');
const valueOf = (record: Uint8Array | undefined): string => Buffer.from(decodeRecord(record!).value).toString('hex');

/** Two reads, so that a rival would be seen. */
async function requireOnly(records: DhtRecords, { key: name, value }: SignedValue): Promise<void> {
  for (let i = 0; i < 2; i++) assert.equal(valueOf(await records.getRecord(name)), Buffer.from(value).toString('hex'));
}

test('peers are written behind, bounded in number, and read again', async () => {
  const clock = new VirtualSched();
  await clock.during(async () => {
    const store = new MemoryDhtStore();
    const row = `/peers/${peerIdFromString(peer).toCID().toString()}`;
    {
      await using rows = await PeerRows.open(store, () => assert.fail());
      rows.put(row, Buffer.from('addresses'));
      assert.equal(store.rows.size, 0);
      await clock.advance(250);
      assert.equal(store.rows.size, 1);
      rows.put(row, Buffer.from('changed'));
    }
    await using again = await PeerRows.open(store, () => assert.fail());
    assert.deepEqual(Buffer.from(again.byId(peer)!), Buffer.from('changed'));
    for (let i = 0; i < 4096; i++) again.put(`/peers/${i}`, Buffer.from([1]));
    assert.equal(again.byId(peer), undefined);
    assert.equal(again.entries().length, 4096);
    await clock.advance(250);
    assert.ok(!store.rows.has(row));
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
  const others = [
    '/dns4/a.example/tcp/80/http',
    '/ip4/1.2.3.4/udp/80',
    '/ip4/1.2.3.4/tcp/80/https',
    '/ip4/1.2.3.4/tcp/80/ws',
  ];
  for (const other of others) assert.equal(text(other), undefined, other);
  assert.equal(endpointOf(Buffer.alloc(0)), undefined);
  assert.equal(endpointOf(Buffer.from([4, 1, 2, 3])), undefined);
  assert.equal(storageAddr('http://[::1]:7101/'), '/ip6/::1/tcp/7101/http');
  assert.equal(storageAddr('http://192.0.2.1'), '/ip4/192.0.2.1/tcp/80/http');
  const urls = ['https://192.0.2.1', 'http://a.example:7101', 'http://192.0.2.1/x', 'http://u@192.0.2.1', 'nonsense'];
  for (const url of urls) assert.equal(storageAddr(url), undefined, url);
});
