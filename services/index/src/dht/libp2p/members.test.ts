/** Who takes part: members only, again after a restart, and again after all bootstrap peers were gone. */
import assert from 'node:assert/strict';
import { chmod, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, test } from 'node:test';
import type { Stream } from '@libp2p/interface';
import { isRonError, NEVER, sched } from '@ron/kernel';
import { VirtualSched } from '@ron/kernel/testing';
import { formatAddress } from '@ron/proto';
import { eventually, tempDirFor, unusedPort } from '@ron/testkit';
import { nodeKeyOf } from '../../node-key.ts';
import { SqliteStore } from '../../store/sqlite-store.ts';
import { JoinedPeers } from '../joined-peers.ts';
import { providerKey } from '../keys.ts';
import { Membership } from './membership.ts';
import { decodeMessage, encodeMessage, KAD } from './wire/message.ts';
import { RawPeer } from './testing/raw-peer.ts';
import { signedName, TestNames } from './testing/test-names.ts';
import { keyOf, networkKey, openNode, refOf } from './testing/test-node.ts';

const failures: unknown[] = [];
process.on('unhandledRejection', (error) => failures.push(error));

const key = keyOf('object');
const isUnreachable = (error: unknown): boolean => isRonError(error, 'unreachable');
const quotas = { providers_max: 1000, providers_per_subject: 100, names_seen: 100 };

test('a stranger without the network key reaches no member, and no member reaches it', async () => {
  // Each waits for bytes that make sense, until the time to connect is over.
  await using member = (await openNode({ dial_ms: 600 })).peers;
  await using stranger = (await openNode({ network_key: networkKey(2), dial_ms: 600 })).peers;
  await assert.rejects(stranger.getProviders(refOf(member), key, NEVER), isUnreachable);
  await assert.rejects(member.getProviders(refOf(stranger), key, NEVER), isUnreachable);
  assert.deepEqual([member.known, member.connected, stranger.known], [0, 0, 0]);
});

test('a peer that is not in dht.allow is refused both ways, one that is takes part', async () => {
  await using listed = (await openNode()).peers;
  await using unlisted = (await openNode()).peers;
  await using strict = (await openNode({ allow: [listed.self] })).peers;
  await assert.rejects(unlisted.getProviders(refOf(strict), key, NEVER), isUnreachable);
  await assert.rejects(strict.getProviders(refOf(unlisted), key, NEVER), isUnreachable);
  await listed.addProvider(refOf(strict), [key], NEVER);
  assert.deepEqual((await strict.getProviders(refOf(listed), key, NEVER)).providers, []);
  assert.equal(strict.connected, 1);
});

test('provider and name records survive a restart; a provider that is no longer allowed is not listed', async (t) => {
  const dir = tempDirFor(t);
  const name = signedName('kept', 3);
  await using asker = (await openNode()).peers;
  await using provider = (await openNode()).peers;
  const first = await SqliteStore.open({ dir, quotas: () => quotas });
  const node = await openNode({ store: first });
  await provider.addProvider(refOf(node.peers), [key], NEVER);
  await provider.putValue(refOf(node.peers), name.key, name.value, NEVER);
  await node.peers[Symbol.asyncDispose]();
  await first[Symbol.asyncDispose]();

  await using store = await SqliteStore.open({ dir, quotas: () => quotas });
  {
    await using again = (await openNode({ store, seed: node.seed })).peers;
    assert.equal(again.self, node.peers.self);
    const { providers } = await asker.getProviders(refOf(again), key, NEVER);
    assert.deepEqual(providers, [{ id: provider.self, url: providers[0]?.url }]);
    assert.match(providers[0]?.url ?? '', /^http:\/\/127/);
    const { value } = await asker.getValue(refOf(again), name.key, NEVER);
    assert.deepEqual(Buffer.from(value!), Buffer.from(name.value));
    // An older record is refused after the restart too: the store remembers the newer one.
    const older = signedName('kept', 2);
    await assert.rejects(provider.putValue(refOf(again), older.key, older.value, NEVER), isUnreachable);
  }
  await using strict = (await openNode({ store, seed: node.seed, allow: [asker.self] })).peers;
  assert.deepEqual((await asker.getProviders(refOf(strict), key, NEVER)).providers, []);
});

test('a port that is in use is named, and the node can be opened later', async () => {
  const first = await openNode();
  const listen = first.peers.listening[0]!.replace(/\/p2p\/.*$/, '');
  await assert.rejects(openNode({ listen }), /EADDRINUSE|listen/);
  await first.peers[Symbol.asyncDispose]();
  await using again = (await openNode({ listen })).peers;
  assert.equal(again.listening.length, 1);
});

test('a node answers for its own objects, with its own storage URL, unless it provides nothing', async () => {
  await using asker = (await openNode()).peers;
  const provides = async (wanted: Uint8Array): Promise<boolean> => Buffer.compare(wanted, key) === 0;
  await using owner = (await openNode({ provides, storage_url: 'http://127.0.0.1:7101' })).peers;
  const { providers } = await asker.getProviders(refOf(owner), key, NEVER);
  assert.deepEqual(providers, [{ id: owner.self, url: 'http://127.0.0.1:7101' }]);
  assert.deepEqual((await asker.getProviders(refOf(owner), keyOf('other'), NEVER)).providers, []);
  await using silent = (await openNode({ provides, storage_url: undefined })).peers;
  assert.deepEqual((await asker.getProviders(refOf(silent), key, NEVER)).providers, []);
  // A call to the own node reads the records that it keeps, without itself.
  await asker.addProvider(refOf(owner), [key], NEVER);
  const own = await owner.getProviders({ id: owner.self, addrs: [] }, key, NEVER);
  assert.deepEqual(
    own.providers.map(({ id }) => id),
    [asker.self],
  );
  const name = signedName('self', 1);
  await owner.putValue({ id: owner.self, addrs: [] }, name.key, name.value, NEVER);
  assert.ok((await owner.getValue({ id: owner.self, addrs: [] }, name.key, NEVER)).value);
});

test('all bootstrap peers go and come back: the node says so, and joins again', async () => {
  const port = await unusedPort();
  const listen = `/ip4/127.0.0.1/tcp/${port}`;
  const first = await openNode({ listen });
  await using node = (await openNode()).peers;
  await using third = (await openNode()).peers;
  await third.findNode(refOf(first.peers), key, NEVER);
  const id = first.peers.self;
  const malformed = [
    `/ip4/999.1.1.1/tcp/7108/p2p/${id}`,
    `/ip4/::1/tcp/7108/p2p/${id}`,
    `/ip4/127.0.0.1/tcp/7108/p2p/${'1'.repeat(45)}`,
  ];
  const warnings: unknown[] = [];
  const bootstrap = [...malformed, refOf(first.peers).addrs[0]!];
  const membership = new Membership(node, bootstrap, (error) => warnings.push(error));
  assert.equal(warnings.length, 3, 'malformed addresses are skipped');
  assert.match(membership.problem ?? '', /none of 1 in dht\.bootstrap/);
  const stopping = new AbortController();
  const running = membership.run(stopping.signal);
  await eventually('joined', () => membership.problem === undefined);
  // The lookup of the own neighbourhood finds the third node.
  await eventually('the table is filled', () => node.known === 2);
  await third[Symbol.asyncDispose]();
  await first.peers[Symbol.asyncDispose]();
  await eventually('alone', () => membership.problem !== undefined);
  await using again = (await openNode({ listen, seed: first.seed })).peers;
  await eventually('joined again', () => membership.problem === undefined && again.connected > 0);
  stopping.abort();
  await running;
});

test('connected peers keep their addresses when the clock jumps by 100 hours', async (t) => {
  await using node = (await openNode()).peers;
  await using asker = (await openNode()).peers;
  await using other = (await openNode()).peers;
  for (const peer of [asker, other]) await peer.findNode(refOf(node), key, NEVER);
  await eventually('both are known', () => node.known === 2);
  t.mock.timers.enable({ apis: ['Date'], now: sched.wall_ms() + 100 * 3_600_000 });
  for (const wanted of [keyOf('near'), other.node.peerId.toMultihash().bytes]) {
    const closer = await asker.findNode(refOf(node), wanted, NEVER);
    assert.deepEqual(
      closer.map(({ id, addrs }) => [id, addrs.length]),
      [[other.self, 1]],
    );
  }
});

test('streams: kept for 5 s, and cut by the server after 10 s without a request', async () => {
  await using node = (await openNode()).peers;
  await using raw = await RawPeer.open();
  await new VirtualSched().during(async () => {
    const clock = (await import('@ron/kernel')).sched as VirtualSched;
    // The streams of our requests: kad-dht opens others to refresh its table.
    const opened = new Set<Stream>();
    let ended = 0;
    raw.behave = (stream) => {
      stream.addEventListener('remoteCloseWrite', () => {
        if (opened.has(stream)) ended++;
        void stream.close();
      });
      stream.addEventListener('message', ({ data }) => {
        const { type } = decodeMessage(data.subarray(1));
        if (type === KAD.GET_PROVIDERS) opened.add(stream);
        stream.send(encodeMessage({ type }));
      });
    };
    for (let i = 0; i < 5; i++) {
      await node.getProviders(raw.ref, key, NEVER);
      await clock.advance(4000);
    }
    assert.deepEqual([opened.size, ended], [1, 0]);
    await clock.advance(2000);
    await eventually('the stream is closed', () => ended === 1);

    const stream = await raw.openStream(refOf(node));
    stream.send(Buffer.from([200]));
    await eventually('the stream is open', () => clock.timers.some(({ label }) => label === 'dht_inbound'));
    await clock.advance(9900);
    assert.equal(stream.status, 'open');
    await clock.advance(200);
    await eventually('the stream is reset', () => stream.status === 'reset');
  });
});

test('the task loads libp2p, listens and reports; a bad network key is named without its content', async (t) => {
  const dir = tempDirFor(t);
  const file = join(dir, 'network.key');
  const store = await SqliteStore.open({ dir: undefined, quotas: () => quotas });
  const address = formatAddress(Buffer.alloc(32, 5));
  await store.announce('storage', [{ address, size: 1, media_type: 'text/plain' }], [], 1);
  const init = {
    key: nodeKeyOf(new Uint8Array(32).fill(77)),
    network_key_file: file,
    listen: '/ip4/127.0.0.1/tcp/0',
    bootstrap: [],
    allow: [],
    storage_url: 'http://127.0.0.1:7101',
    store,
    names: new TestNames(),
    warn: (error: unknown) => assert.fail(String(error)),
  };
  await using peers = new JoinedPeers(init);
  assert.equal(peers.problem, 'the DHT is starting');
  await assert.rejects(peers.getProviders({ id: 'x', addrs: [] }, key, NEVER), (error) =>
    isRonError(error, 'no_route'),
  );
  const stopping = new AbortController();
  await writeFile(file, 'secret', { mode: 0o600 });
  await assert.rejects(peers.run(stopping.signal), (error) => isRonError(error, 'not_ready'));
  assert.match(peers.problem ?? '', /network\.key does not contain a network key/);
  await writeFile(file, networkKey());
  await chmod(file, 0o644);
  await assert.rejects(peers.run(stopping.signal), /chmod 600/);
  await chmod(file, 0o600);
  const running = peers.run(stopping.signal);
  await eventually('listening', () => peers.listening.length === 1);
  assert.match(peers.problem ?? '', /no peer is connected/);
  await using asker = (await openNode()).peers;
  const { providers } = await asker.getProviders(
    { id: peers.self, addrs: peers.listening },
    providerKey(address),
    NEVER,
  );
  assert.deepEqual(providers, [{ id: peers.self, url: 'http://127.0.0.1:7101' }]);
  assert.deepEqual((await asker.getProviders({ id: peers.self, addrs: [] }, key, NEVER)).providers, []);
  await eventually('a peer is connected', () => peers.problem === undefined);
  stopping.abort();
  await running;
  // Requests that drain still work; after disposal none does.
  await peers.getProviders({ id: asker.self, addrs: asker.listening }, key, NEVER);
  await peers[Symbol.asyncDispose]();
  await assert.rejects(peers.getProviders({ id: asker.self, addrs: asker.listening }, key, NEVER), (error) =>
    isRonError(error, 'closed'),
  );
  await store[Symbol.asyncDispose]();
});

after(() => assert.deepEqual(failures, [], 'no rejection stayed unhandled'));
