/** Members that break the rules: each request ends with an error within the time of its signal, and the node goes on. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type AddressInfo } from 'node:net';
import { after, before, describe, test } from 'node:test';
import type { Stream } from '@libp2p/interface';
import { isRonError, NEVER, type ErrorCode } from '@ron/kernel';
import { eventually } from '@ron/testkit';
import { multiaddr } from '@multiformats/multiaddr';
import { decodeMessage, encodeMessage, encodeRecord, KAD } from './wire/message.ts';
import { MemoryDhtStore } from './testing/memory-dht-store.ts';
import { answering, RawPeer, type Behavior } from './testing/raw-peer.ts';
import { signedName } from './testing/test-names.ts';
import { keyOf, openNode, refOf, type TestNode } from './testing/test-node.ts';

const failures: unknown[] = [];
process.on('unhandledRejection', (error) => failures.push(error));

let node: TestNode;
let good: TestNode;
let raw: RawPeer;

before(async () => {
  [node, good, raw] = await Promise.all([openNode({ store: new MemoryDhtStore(5) }), openNode(), RawPeer.open()]);
});
after(async () => {
  await Promise.all([node.peers, good.peers, raw].map((part) => part[Symbol.asyncDispose]()));
});

const key = keyOf('wanted');
const is = (code: ErrorCode) => (error: unknown) => isRonError(error, code) || assert.fail(String(error));
const stillWorks = async (): Promise<void> => {
  assert.deepEqual((await node.peers.getProviders(refOf(good.peers), key, NEVER)).providers, []);
};
const peersOf = (count: number, from = 0) =>
  Array.from({ length: count }, (_, i) => ({
    id: Buffer.concat([Buffer.from([0x12, 0x20]), keyOf(`peer ${from + i}`).subarray(2)]),
    addrs: [multiaddr('/ip4/127.0.0.1/tcp/9').bytes],
  }));

describe('a peer that answers wrongly', () => {
  const cases: [string, Behavior, ErrorCode][] = [
    ['with garbage', answering(Buffer.from([5, 0xff, 0xff, 0xff, 0xff, 0xff])), 'bad_gateway'],
    [
      'with 10 000 closer peers',
      answering(encodeMessage({ type: KAD.GET_PROVIDERS, closer: peersOf(10_000) })),
      'bad_gateway',
    ],
    ['with a frame of 2 GiB', answering(Buffer.from([0xff, 0xff, 0xff, 0xff, 0x07])), 'bad_gateway'],
    [
      'twice',
      answering(Buffer.concat([encodeMessage({ type: KAD.PING }), encodeMessage({ type: KAD.PING })])),
      'bad_gateway',
    ],
    [
      'with an oversized record',
      answering(encodeMessage({ type: KAD.GET_VALUE, record: Buffer.alloc(5000) })),
      'bad_gateway',
    ],
    [
      'with the record of another key',
      answering(
        encodeMessage({ type: KAD.GET_VALUE, record: encodeRecord({ key: keyOf('x'), value: key, received: '' }) }),
      ),
      'bad_gateway',
    ],
    ['by a reset when the stream opens', (stream) => stream.abort(new Error('reset')), 'unreachable'],
    ['by a reset after the request', onMessage((stream) => stream.abort(new Error('reset'))), 'unreachable'],
    [
      'by a reset within the answer',
      onMessage((stream) => (stream.send(Buffer.from([9, 8])), stream.abort(new Error('r')))),
      'unreachable',
    ],
    ['by the end of the stream', onMessage((stream) => void stream.close()), 'unreachable'],
    ['by closing the connection', (_, connection) => void connection.close(), 'unreachable'],
    ['by cutting the connection', (_, connection) => connection.abort(new Error('cut')), 'unreachable'],
  ];
  for (const [name, behavior, code] of cases) {
    test(name, async () => {
      raw.behave = behavior;
      await assert.rejects(node.peers.getValue(raw.ref, key, NEVER), is(code));
      await stillWorks();
    });
  }
});

function onMessage(act: (stream: Stream) => void): Behavior {
  return (stream) => stream.addEventListener('message', () => act(stream));
}

/** Ignores the requests by which kad-dht refreshes its table. */
function onProvidersRequest(act: (stream: Stream) => void): Behavior {
  return (stream) =>
    stream.addEventListener('message', ({ data }) => {
      if (decodeMessage(data.subarray(1)).type === KAD.GET_PROVIDERS) act(stream);
    });
}

describe('bounds of an answer', () => {
  test('of 800 closer peers 20 are read, of 800 providers 32; none of them is dialed or kept', async () => {
    raw.behave = answering(encodeMessage({ type: KAD.GET_PROVIDERS, closer: peersOf(800), providers: peersOf(800) }));
    const answer = await node.peers.getProviders(raw.ref, key, NEVER);
    assert.equal(answer.closer.length, 20);
    assert.equal(answer.providers.length, 32);
    assert.ok(node.peers.known <= 2);
  });

  test('of the answers to the own lookups of kad-dht no more is read', async () => {
    await eventually('the peer is in the table', async () =>
      (await node.peers.closest(key, 20)).some(({ id }) => id === raw.ref.id),
    );
    const noted = (await node.peers.node.peerStore.all()).length;
    // Peers that no earlier answer has named.
    raw.behave = answering(encodeMessage({ type: KAD.FIND_NODE, closer: peersOf(800, 100_000) }));
    for await (const _ of node.peers.node.services.kad.getClosestPeers(key, { signal: NEVER }));
    await eventually('the peers are noted', async () => (await node.peers.node.peerStore.all()).length > noted);
    assert.ok((await node.peers.node.peerStore.all()).length <= noted + 20);
  });

  test('a peer that names the storage of another host as its own gets no URL', async () => {
    const own = { id: raw.id, addrs: [multiaddr('/ip4/10.1.2.3/tcp/80/http').bytes] };
    const foreign = {
      id: good.peers.node.peerId.toMultihash().bytes,
      addrs: [multiaddr('/ip4/10.1.2.3/tcp/80/http').bytes],
    };
    const dead = {
      ...peersOf(1)[0]!,
      addrs: [multiaddr('/ip4/127.0.0.1/tcp/80/http').bytes, multiaddr('/ip4/127.0.0.1/tcp/9').bytes],
    };
    raw.behave = answering(encodeMessage({ type: KAD.GET_PROVIDERS, providers: [own, foreign, dead] }));
    const { providers } = await node.peers.getProviders(raw.ref, key, NEVER);
    assert.deepEqual(
      providers.map(({ url }) => url),
      [undefined, undefined, undefined],
    );
  });
});

test('a peer that names 32 dead providers has at most two of them dialed', async (t) => {
  let accepted = 0;
  const server = createServer((socket) => {
    socket.on('error', () => undefined);
    // HTTP clients of tests that run beside this one may still call an earlier owner of the port.
    socket.once('data', (bytes) => {
      if (!bytes.includes(' HTTP/1.1')) accepted++;
      socket.destroy();
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => server.close());
  const { port } = server.address() as AddressInfo;
  const addrs = [multiaddr('/ip4/127.0.0.1/tcp/80/http').bytes, multiaddr(`/ip4/127.0.0.1/tcp/${port}`).bytes];
  const providers = peersOf(32).map(({ id }) => ({ id, addrs }));
  raw.behave = answering(encodeMessage({ type: KAD.GET_PROVIDERS, providers }));
  const answer = await node.peers.getProviders(raw.ref, key, NEVER);
  assert.ok(answer.providers.every(({ url }) => url === undefined));
  assert.equal(accepted, 2);
});

describe('a peer that does not answer', () => {
  test('the request ends with the signal, and a late answer reaches no other request', async () => {
    const streams: Stream[] = [];
    raw.behave = onProvidersRequest((stream) => void streams.push(stream));
    const caller = new AbortController();
    const request = node.peers.getProviders(raw.ref, key, caller.signal);
    await eventually('the request has arrived', () => streams.length === 1);
    caller.abort(new Error('the caller left'));
    await assert.rejects(request, /the caller left/);
    // At once, and not when the idle stream is closed after 5 s.
    await eventually('the peer sees the reset', () => streams[0]!.status === 'reset', 4000);
    const next = node.peers.getProviders(raw.ref, key, NEVER);
    await eventually('the next request has its own stream', () => streams.length === 2 && streams[1] !== streams[0]);
    streams[1]!.send(encodeMessage({ type: KAD.GET_PROVIDERS }));
    assert.deepEqual((await next).providers, []);
  });

  test('64 requests wait for one peer, the next is refused', async () => {
    raw.behave = () => undefined;
    const caller = new AbortController();
    const waiting = Array.from({ length: 64 }, () => node.peers.getProviders(raw.ref, key, caller.signal));
    await assert.rejects(node.peers.getProviders(raw.ref, key, NEVER), is('busy'));
    caller.abort(new Error('the caller left'));
    for (const { status } of await Promise.allSettled(waiting)) assert.equal(status, 'rejected');
    await stillWorks();
  });

  test('a kept stream that the peer has reset meanwhile is replaced', async () => {
    const streams: Stream[] = [];
    raw.behave = onProvidersRequest((stream) => {
      streams.push(stream);
      stream.send(encodeMessage({ type: KAD.GET_PROVIDERS }));
    });
    await node.peers.getProviders(raw.ref, key, NEVER);
    await node.peers.getProviders(raw.ref, key, NEVER);
    assert.deepEqual([streams.length, new Set(streams).size], [2, 1]);
    // Resets the kept stream: the reset and the next request cross.
    raw.behave = answering(encodeMessage({ type: KAD.GET_PROVIDERS }));
    await node.peers.getProviders(raw.ref, key, NEVER);
  });

  test('a peer that cannot be dialed is unreachable', async () => {
    const id = openIds.at(0)!;
    await assert.rejects(
      node.peers.getProviders({ id, addrs: ['/ip4/127.0.0.1/tcp/9'] }, key, NEVER),
      is('unreachable'),
    );
    await assert.rejects(node.peers.getProviders({ id, addrs: [] }, key, NEVER), is('unreachable'));
    await assert.rejects(node.peers.getProviders({ id: 'not a peer', addrs: [] }, key, NEVER), is('unreachable'));
  });
});

const openIds = ['12D3KooWJWoaqZhDaoEFshF7Rh1bpY9ohihFhzcW6d69Lr2NASuq'];

describe('a peer that asks wrongly', () => {
  const cases: [string, Uint8Array][] = [
    ['garbage', Buffer.from([3, 0xff, 0xff, 0xff])],
    ['a message of 17 KiB', Buffer.from([0x81, 0x88, 0x01])],
    ['a message of an unknown type', Buffer.from([2, 0x08, 0x09])],
    ['100 000 empty messages', Buffer.alloc(100_000)],
    ['GET_PROVIDERS without a key', encodeMessage({ type: KAD.GET_PROVIDERS })],
    ['a record of another namespace', putOf(Buffer.from('/other/x'), Buffer.from('v'))],
    ['a record that is not signed', putOf(signedName('a', 1).key, Buffer.alloc(200))],
    ['a record under the key of another name', putOf(signedName('a', 1).key, signedName('b', 1).value)],
    ['an expired record', putOf(signedName('a', 1).key, signedName('a', 1, { not_after: 1000 }).value)],
    ['an oversized record', putOf(signedName('a', 1).key, Buffer.alloc(1200))],
  ];
  for (const [name, bytes] of cases) {
    test(`${name}: the stream is reset, nothing is stored`, async () => {
      const rows = records(node).length;
      const stream = await raw.openStream(refOf(node.peers));
      stream.send(bytes);
      await eventually('the stream is reset', () => stream.status !== 'open');
      assert.equal(records(node).length, rows);
      await stillWorks();
    });
  }

  test('[index I-9] providers beyond the quota of a peer are refused', async () => {
    const keys = Array.from({ length: 10 }, (_, i) => keyOf(`quota ${i}`));
    await assert.rejects(good.peers.addProvider(refOf(node.peers), keys, NEVER), is('unreachable'));
    assert.equal(records(node).filter((row) => row.endsWith(good.peers.self)).length, 5);
  });

  test('[index I-9] name records are charged to the peer that sends them', async () => {
    await using sender = (await openNode()).peers;
    const put = async (seq: number): Promise<void> => {
      const { key: name, value } = signedName(`charged/${seq}`, 1);
      await sender.putValue(refOf(node.peers), name, value, NEVER);
    };
    for (let seq = 0; seq < 5; seq++) await put(seq);
    await assert.rejects(put(5), is('unreachable'));
    assert.equal([...node.store.rows.values()].filter(({ subject }) => subject === sender.self).length, 5);
  });

  test('a peer cannot provide for another one', async () => {
    const stream = await raw.openStream(refOf(node.peers));
    const providers = [
      { id: good.peers.node.peerId.toMultihash().bytes, addrs: [multiaddr('/ip4/127.0.0.1/tcp/9').bytes] },
    ];
    const answers: unknown[] = [];
    stream.addEventListener('message', (event) => answers.push(event.data));
    stream.send(
      Buffer.concat([encodeMessage({ type: KAD.ADD_PROVIDER, key, providers }), encodeMessage({ type: KAD.PING })]),
    );
    await eventually('the peer has handled it', () => answers.length === 1);
    assert.deepEqual((await good.peers.getProviders(refOf(node.peers), key, NEVER)).providers, []);
    stream.abort(new Error('done'));
  });

  test('a lower seq is refused, even if the newer record arrives at the same time', async () => {
    // Signed once: a record that is signed a second later is another one.
    const signed = [1, 2].map((seq) => signedName('race', seq));
    await using sender = (await openNode()).peers;
    const put = async (seq: number): Promise<void> => {
      const { key: name, value: record } = signed[seq - 1]!;
      await sender.putValue(refOf(node.peers), name, record, NEVER);
    };
    node.names.accepts = async (signer, label, value) => await new Accepting().accepts(signer, label, value);
    const [older, newer] = await Promise.allSettled([put(1), put(2)]);
    assert.equal(newer.status, 'fulfilled');
    const { value } = await good.peers.getValue(refOf(node.peers), signed[1]!.key, NEVER);
    assert.deepEqual(Buffer.from(value!), Buffer.from(signed[1]!.value), older.status);
    await assert.rejects(put(1), is('unreachable'));
    await put(2);
  });
});

const Accepting = (await import('./testing/test-names.ts')).TestNames;
const records = ({ store }: TestNode): string[] => [...store.rows.keys()].filter((row) => row.startsWith('/dht/'));

function putOf(name: Uint8Array, value: Uint8Array): Uint8Array {
  const record = encodeRecord({ key: name, value, received: '2026-01-01T00:00:00.000Z' });
  return encodeMessage({ type: KAD.PUT_VALUE, key: name, record });
}

test('no rejection stayed unhandled', () => {
  assert.deepEqual(failures, []);
});
