/** Lookups and publishing over real connections: the driver and the adapter together. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { NEVER } from '@ron/kernel';
import { formatAddress } from '@ron/proto';
import { decodeNameRecord, splitSignedName } from '@ron/proto/names';
import { eventually } from '@ron/testkit';
import { DhtDriver } from '../driver.ts';
import { providerKey } from '../keys.ts';
import { TestBreakers } from '../testing/breakers.ts';
import { Membership } from './membership.ts';
import { RawPeer } from './testing/raw-peer.ts';
import { decodeMessage, KAD } from './wire/message.ts';
import { signedName } from './testing/test-names.ts';
import { openNode, refOf, type TestNode } from './testing/test-node.ts';

const failures: unknown[] = [];
process.on('unhandledRejection', (error) => failures.push(error));

const COUNT = 5;
const stopping = new AbortController();
const limits = () => ({ alpha: 3, beta: 2, hedge_ms: 150 });
let nodes: TestNode[];
let drivers: DhtDriver[];
let running: Promise<void>[];

before(async () => {
  nodes = await Promise.all(Array.from({ length: COUNT }, () => openNode()));
  const [bootstrap] = refOf(nodes[0]!.peers).addrs;
  running = nodes.map(({ peers }) =>
    new Membership(peers, [bootstrap!], (error) => assert.fail(String(error))).run(stopping.signal),
  );
  drivers = nodes.map(({ peers }) => new DhtDriver({ peers, breakers: new TestBreakers(), limits }));
  const isJoined = ({ peers }: TestNode): boolean => Math.min(peers.known, peers.connected) === COUNT - 1;
  await eventually('all know each other', () => nodes.every(isJoined));
});
after(async () => {
  stopping.abort();
  await Promise.all(running);
  await Promise.all(drivers.map((driver) => driver[Symbol.asyncDispose]()));
  await Promise.all(nodes.map(({ peers }) => peers[Symbol.asyncDispose]()));
  assert.deepEqual(failures, [], 'no rejection stayed unhandled');
});

test('an object that one node provides is found by all others, with its URL', async () => {
  const address = formatAddress(Buffer.alloc(32, 3));
  const provider = nodes[2]!.peers;
  const { closest } = await drivers[2]!.findClosest(providerKey(address), NEVER);
  for (const peer of closest.slice(0, 3)) await provider.addProvider(peer, [providerKey(address)], NEVER);
  for (const [at, driver] of drivers.entries()) {
    if (at === 2) continue;
    // Requests have time limits of their own, which a busy machine can exceed.
    await eventually(`node ${at} finds it`, async () => {
      const { providers } = await driver.findProviders(address, { signal: NEVER, verdict: () => undefined });
      assert.ok(providers.every(({ id }) => id === provider.self));
      return providers[0]?.url?.startsWith('http://127.0.0.1:') ?? false;
    });
  }
});

test('a name that one node publishes is found by all others', async () => {
  const { value } = signedName('docs/report', 1);
  const decoded = decodeNameRecord(splitSignedName(value)!.record);
  assert.ok(decoded.ok);
  const { key } = decoded.record;
  await eventually('a quorum has it', async () => {
    const { stored } = await drivers[1]!.publishName(key, 'docs/report', value, NEVER);
    return stored >= 3;
  });
  for (const [at, driver] of drivers.entries()) {
    await eventually(`node ${at} finds it`, async () => {
      const { values } = await driver.findName(key, 'docs/report', { signal: NEVER });
      return values.length === 1 && Buffer.compare(values[0]!, value) === 0;
    });
  }
});

test('a lookup in which a peer stalls and another one goes away finds its object, and ends with its signal', async () => {
  const address = formatAddress(Buffer.alloc(32, 4));
  const [asker, provider, keeper] = [nodes[0]!.peers, nodes[1]!.peers, nodes[2]!.peers];
  await provider.addProvider(refOf(keeper), [providerKey(address)], NEVER);
  await using stalled = await RawPeer.open();
  let asked = 0;
  // Not by kad-dht, which refreshes its table.
  const isOurs = (data: Uint8Array): boolean => decodeMessage(data.subarray(1)).type === KAD.GET_PROVIDERS;
  stalled.behave = (stream) =>
    stream.addEventListener('message', ({ data }) => void (asked += isOurs(data.subarray()) ? 1 : 0));
  await stalled.openStream(refOf(asker));
  await eventually('the stalled peer is known', async () =>
    (await asker.closest(providerKey(address), 20)).some(({ id }) => id === stalled.ref.id),
  );
  const caller = new AbortController();
  const seen: string[] = [];
  const lookup = drivers[0]!.findProviders(address, {
    signal: caller.signal,
    verdict: () => undefined,
    onProvider: ({ id }) => void seen.push(id),
  });
  await nodes[4]!.peers[Symbol.asyncDispose]();
  await eventually('it was found, and the stalled peer was asked', () => seen.length > 0 && asked > 0);
  caller.abort();
  const found = await lookup;
  assert.deepEqual([found.providers.map(({ id }) => id), found.complete], [[provider.self], false]);
});
