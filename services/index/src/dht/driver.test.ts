import assert from 'node:assert/strict';
import { test } from 'node:test';
import { sleep } from '@ron/kernel';
import { peerIdOf, urlOf } from './testing/network.ts';
import { addressOf, BUDGET_MS, newTrace, World } from './testing/world.ts';
import type { LookupInit } from './dht.ts';
import { compareDistance, positionOfKey, positionOfPeer, providerKey } from './keys.ts';
import type { PeerAnswer, PeerRef } from './peers.ts';

const ADDRESS = addressOf('an object');
const KEY = providerKey(ADDRESS);
const URL = 'http://127.0.0.1:7101';
const unproven = (): undefined => undefined;

/** The peers that a lookup queries first. */
async function firstPeers(world: World, count: number): Promise<string[]> {
  return (await world.node.closest(KEY, count)).map(({ id }) => id);
}

function find(world: World, more: { verdict?: LookupInit['verdict']; budget_ms?: number } = {}) {
  const trace = newTrace();
  const use = () => {
    const init = { signal: world.signal(more.budget_ms), trace, verdict: more.verdict ?? unproven };
    return world.driver.findProviders(ADDRESS, init);
  };
  return world.during(use).then(({ value, took_ms }) => ({ ...value, took_ms, trace }));
}

test('a lookup ends when two peers name a provider, and says that the result is complete', async () => {
  const world = new World({ nodes: 60 });
  world.network.provide(KEY, { id: world.nodes[0]!.self, url: 'http://127.0.0.1:7101' });
  const { providers, complete, empty } = await find(world);
  assert.deepEqual(
    providers.map(({ id, url }) => [id, url]),
    [[world.nodes[0]!.self, 'http://127.0.0.1:7101']],
  );
  assert.ok(providers[0]!.reporters >= 2);
  assert.equal(complete, true);
  assert.equal(empty, undefined);
  assert.ok(
    world.network.sent.every(({ outcome }) => outcome !== 'running'),
    'all requests have ended',
  );
});

test('one proven provider ends a lookup', async () => {
  const world = new World({ nodes: 60 });
  const [first] = await firstPeers(world, 1);
  world.network.nodes.get(first!)!.store(KEY, { id: world.nodes[0]!.self, url: URL });
  const { providers, complete } = await find(world, { verdict: () => 'proven' });
  assert.equal(providers.length, 1);
  assert.equal(complete, true);
  assert.equal(world.network.sent.length, 3, 'only the first requests were sent');
});

test('alpha peers that stall: beta peers answer after hedge_ms, and the stalled requests are canceled', async () => {
  const world = new World({ nodes: 60 });
  world.network.provide(KEY, { id: world.nodes[0]!.self, url: URL });
  const stalled = await firstPeers(world, 3);
  for (const id of stalled) world.network.nodes.get(id)!.behavior = 'silent';
  const { providers, took_ms, trace } = await find(world);
  assert.equal(providers.length, 1);
  assert.ok(took_ms > 150 && took_ms < 400, `took ${took_ms} ms`);
  for (const id of stalled) {
    const sent = world.network.sent.filter(({ to }) => to === id);
    assert.deepEqual(
      sent.map(({ outcome }) => outcome),
      ['canceled'],
    );
    assert.equal(trace.peers.find(({ peer }) => peer === id)?.outcome, 'canceled');
  }
  assert.equal(trace.hedges_started, 2);
  assert.ok(trace.hedges_won >= 1);
  assert.deepEqual(
    trace.peers.filter(({ wave }) => wave === 'beta').map(({ started_ms }) => started_ms),
    [150, 150],
  );
});

test('peers that drop their requests mid-flight are retried and replaced', async () => {
  const world = new World({ nodes: 60 });
  world.network.provide(KEY, { id: world.nodes[0]!.self, url: URL });
  const dropped = await firstPeers(world, 3);
  world.clock.timer(10, () => dropped.forEach((id) => (world.network.nodes.get(id)!.behavior = 'gone')), 'drop');
  const { providers, took_ms } = await find(world);
  assert.equal(providers.length, 1);
  assert.ok(took_ms < 400, `took ${took_ms} ms`);
});

test('no peer is queried twice, even if many fail', async () => {
  const world = new World({ nodes: 120 });
  const behaviors = ['silent', 'garbage', 'normal', 'floods', 'normal', 'claims_all'] as const;
  for (const [at, node] of world.nodes.entries()) node.behavior = behaviors[at % behaviors.length]!;
  const { trace } = await find(world);
  const queried = trace.peers.map(({ peer }) => peer);
  assert.equal(new Set(queried).size, queried.length);
  assert.ok(queried.length <= 64, `${queried.length} requests`);
});

test('without hedge budget a lookup waits for its requests, and still ends', async () => {
  const world = new World({ nodes: 60 });
  world.network.provide(KEY, { id: world.nodes[0]!.self, url: URL });
  for (const id of await firstPeers(world, 20)) world.network.nodes.get(id)!.behavior = 'silent';
  let [started, refused] = [0, 0];
  for (let at = 0; at < 4; at += 1) {
    const { trace } = await find(world);
    started += trace.hedges_started;
    refused += trace.hedges_refused;
  }
  assert.ok(started <= 10, `${started} hedges in 10 s`);
  assert.ok(refused > 0);
});

test('all breakers open: no request is sent, and the result says so', async () => {
  const world = new World({ nodes: 30 });
  await world.clock.during(() => {
    for (const node of world.nodes) world.breakers.open(node.self);
  });
  const { empty, complete, took_ms, trace } = await find(world);
  assert.equal(empty, 'breakers_open');
  assert.equal(complete, false);
  assert.equal(took_ms, 0);
  assert.equal(world.network.sent.length, 0);
  assert.ok(trace.peers.every(({ outcome, tries }) => outcome === 'breaker_open' && tries === 0));
});

test('[index I-4] a lookup ends with its signal, even if all peers stall', async () => {
  const world = new World({ nodes: 30 });
  for (const node of world.nodes) node.behavior = 'silent';
  const { empty, complete, took_ms } = await find(world);
  assert.equal(empty, 'deadline');
  assert.equal(complete, false);
  assert.equal(took_ms, BUDGET_MS);
  assert.ok(world.network.sent.every(({ outcome }) => outcome === 'canceled'));
});

test('peers that never answer: the lookup waits for its deadline, and their breakers open', async () => {
  const world = new World({ nodes: 3 });
  for (const node of world.nodes) node.behavior = 'silent';
  const first = await find(world);
  assert.equal(first.took_ms, BUDGET_MS);
  assert.equal(first.empty, 'deadline');
  assert.deepEqual(new Set(first.trace.peers.map(({ outcome }) => outcome)), new Set(['timeout']));
  await find(world);
  assert.equal((await find(world)).empty, 'breakers_open');
});

test('a slow peer is replaced after 500 ms, and its answer is still used', async () => {
  const world = new World({ nodes: 3 });
  const slow = world.nodes[0]!;
  slow.store(KEY, { id: peerIdOf('holder'), url: urlOf('holder') });
  const getProviders = world.node.getProviders.bind(world.node);
  world.node.getProviders = async (peer, key, signal) => {
    if (peer.id === slow.self) await sleep(900, signal);
    return getProviders(peer, key, signal);
  };
  const { providers, complete, took_ms, trace } = await find(world);
  assert.equal(providers.length, 1);
  assert.equal(complete, true);
  assert.ok(took_ms >= 900 && took_ms < BUDGET_MS, `took ${took_ms} ms`);
  assert.equal(trace.peers.find(({ peer }) => peer === slow.self)?.outcome, 'answered');
});

test('a silent peer among peers that have nothing: it may have the object, so the lookup times out', async () => {
  const world = new World({ nodes: 5 });
  world.nodes[0]!.behavior = 'silent';
  const { empty, complete, took_ms } = await find(world);
  assert.deepEqual([empty, complete, took_ms], ['deadline', false, BUDGET_MS]);
});

test('a silent peer does not delay a result that another peer has', async () => {
  const world = new World({ nodes: 5 });
  world.nodes[0]!.behavior = 'silent';
  world.nodes[1]!.store(KEY, { id: peerIdOf('holder'), url: urlOf('holder') });
  const { providers, complete, took_ms } = await find(world);
  assert.deepEqual([providers.length, complete, took_ms], [1, false, 500]);
});

test('peers that all fail at once are known, so there is a route: the lookup timed out', async () => {
  const world = new World({ nodes: 3 });
  for (const node of world.nodes) node.behavior = 'garbage';
  const { empty, complete } = await find(world);
  assert.deepEqual([empty, complete], ['deadline', false]);
});

test('no peer has it: the closest 20 have answered', async () => {
  const world = new World({ nodes: 60 });
  const { empty, complete } = await find(world);
  assert.equal(empty, 'none_has_it');
  assert.equal(complete, true);
  const queried = new Set(world.network.sent.map(({ to }) => to));
  const closest = world.network.closestTo(KEY, 21).filter((node) => node !== world.node);
  for (const node of closest.slice(0, 20)) assert.ok(queried.has(node.self), 'one of the closest was not queried');
});

test('a failed peer makes "none" incomplete; it is retried within the budget', async () => {
  const world = new World({ nodes: 5 });
  world.nodes[0]!.behavior = 'gone';
  const { empty, complete, trace } = await find(world);
  assert.equal(empty, 'none_has_it');
  assert.equal(complete, false);
  assert.equal(trace.peers.find(({ peer }) => peer === world.nodes[0]!.self)?.tries, 2, 'the breaker ends the retries');
});

test('in a large network, failed peers are replaced by the next closest ones, and "none" is complete', async () => {
  const world = new World({ nodes: 60 });
  for (const id of await firstPeers(world, 3)) world.network.nodes.get(id)!.behavior = 'garbage';
  const { empty, complete } = await find(world);
  assert.deepEqual([empty, complete], ['none_has_it', true]);
});

test('garbage is a failure of the peer and is not retried', async () => {
  const world = new World({ nodes: 5 });
  world.nodes[0]!.behavior = 'garbage';
  const { trace } = await find(world);
  const bad = trace.peers.find(({ peer }) => peer === world.nodes[0]!.self);
  assert.deepEqual([bad?.outcome, bad?.tries], ['failed', 1]);
});

test('a peer that claims every object does not end the lookup alone', async () => {
  const world = new World({ nodes: 60 });
  const holder = world.nodes.at(-1)!;
  world.network.provide(KEY, { id: holder.self, url: URL });
  const [liar] = await firstPeers(world, 1);
  world.network.nodes.get(liar!)!.behavior = 'claims_all';
  const { providers } = await find(world);
  assert.ok(
    providers.some(({ id }) => id === holder.self),
    'the true provider is missing',
  );
});

test('a peer that sends 10 000 closer peers costs a bounded number of requests', async () => {
  const world = new World({ nodes: 60 });
  world.network.provide(KEY, { id: world.nodes[0]!.self, url: URL });
  for (const id of await firstPeers(world, 1)) world.network.nodes.get(id)!.behavior = 'floods';
  const { providers } = await find(world);
  assert.equal(providers.length, 1);
  assert.ok(world.network.sent.length <= 64);
});

/** Peers that do not answer, closer to the key than almost all others, and in no routing table. */
function inventPeers(world: World, count: number): PeerRef[] {
  const target = positionOfKey(KEY);
  const ids = Array.from({ length: 2000 }, (_, at) => `invented ${at}`).map((name) => ({ name, id: peerIdOf(name) }));
  ids.sort((a, b) => compareDistance(target, positionOfPeer(a.id)!, positionOfPeer(b.id)!));
  return ids.slice(0, count).map(({ name, id }) => {
    world.network.add(name).behavior = 'silent';
    return { id, addrs: [] };
  });
}

test('a peer that invents closer peers neither hides a provider nor has many of them called', async () => {
  const world = new World({ nodes: 12 });
  const holder = world.nodes.at(-1)!;
  const known = await firstPeers(world, 12);
  const invented = inventPeers(world, 20);
  const getProviders = world.node.getProviders.bind(world.node);
  world.node.getProviders = async (peer, key, signal) => {
    const answer = await getProviders(peer, key, signal);
    return peer.id === known[0] ? { ...answer, closer: invented } : { ...answer, closer: [] };
  };
  for (const id of known.slice(-2)) world.network.nodes.get(id)!.store(KEY, { id: holder.self, url: URL });
  const { providers, complete, took_ms } = await find(world);
  assert.deepEqual(providers, [{ id: holder.self, url: URL, reporters: 2 }]);
  assert.equal(complete, true);
  assert.ok(took_ms < 500, `took ${took_ms} ms`);
  const calls = world.network.sent.filter(({ to }) => invented.some(({ id }) => id === to));
  assert.ok(calls.length <= 4, `${calls.length} invented peers were called`);
});

test('without a known peer there is no route', async () => {
  const world = new World({ nodes: 0 });
  const { empty, complete } = await find(world);
  assert.equal(empty, 'no_route');
  assert.equal(complete, false);
  assert.match(world.driver.problem ?? '', /no peer/);
});

test('records that this node keeps are part of the result; claims for this node are not', async () => {
  const world = new World({ nodes: 1 });
  world.node.store(KEY, { id: world.nodes[0]!.self, url: URL });
  world.node.store(KEY, { id: world.node.self, url: URL });
  world.nodes[0]!.store(KEY, { id: world.nodes[0]!.self, url: URL });
  const { providers, complete } = await find(world);
  assert.deepEqual(providers, [{ id: world.nodes[0]!.self, url: URL, reporters: 2 }]);
  assert.equal(complete, true);
});

test('a liar that also stored its record at this node does not end the lookup alone', async () => {
  const world = new World({ nodes: 60 });
  const holder = world.nodes.at(-1)!;
  const [liar, honest] = await firstPeers(world, 2);
  world.network.nodes.get(liar!)!.behavior = 'claims_all';
  world.node.store(KEY, { id: liar!, url: urlOf(liar!) });
  world.network.nodes.get(honest!)!.store(KEY, { id: holder.self, url: URL });
  world.network.nodes.get(honest!)!.delay_ms = 100;
  const { providers } = await find(world);
  assert.ok(providers.some(({ id, url }) => id === holder.self && url === URL));
});

test('a report without the URL of a provider does not hide its URL, and does not end the lookup', async () => {
  const world = new World({ nodes: 60 });
  const holder = world.nodes.at(-1)!;
  const [liar, accomplice, honest] = await firstPeers(world, 3);
  for (const id of [liar!, accomplice!]) world.network.nodes.get(id)!.store(KEY, { id: holder.self, url: undefined });
  world.network.nodes.get(honest!)!.store(KEY, { id: holder.self, url: URL });
  world.network.nodes.get(honest!)!.delay_ms = 100;
  const { providers } = await find(world);
  assert.deepEqual(providers, [{ id: holder.self, url: URL, reporters: 1 }]);
});

test('providers that failed their proof do not end a lookup, nor do they make its result useful', async () => {
  const world = new World({ nodes: 60 });
  const holder = world.nodes.at(-1)!;
  const peers = await firstPeers(world, 4);
  for (const id of peers.slice(0, 3)) world.network.nodes.get(id)!.behavior = 'claims_all';
  const verdict: LookupInit['verdict'] = (_address, { id }) => (id === holder.self ? undefined : 'failed');
  const without = await find(world, { verdict });
  assert.equal(without.empty, 'none_has_it');
  assert.ok(
    world.network.sent.length >= 20,
    `${world.network.sent.length} requests: the closest peers were not queried`,
  );
  world.network.nodes.get(peers[3]!)!.store(KEY, { id: holder.self, url: URL });
  const { providers, empty } = await find(world, { verdict });
  assert.ok(providers.some(({ id }) => id === holder.self));
  assert.equal(empty, undefined);
});

test('providers are reported in order of arrival, and each once', async () => {
  const world = new World({ nodes: 40 });
  for (const name of ['a', 'b']) world.network.provide(KEY, { id: peerIdOf(name), url: URL });
  const arrived: string[] = [];
  const onProvider = ({ id }: { id: string }): void => void arrived.push(id);
  await world.during(() =>
    world.driver.findProviders(ADDRESS, { signal: world.signal(), verdict: unproven, onProvider }),
  );
  assert.deepEqual(arrived.toSorted(), [peerIdOf('a'), peerIdOf('b')].toSorted());
});

test('an outage does not multiply requests', async () => {
  const world = new World({ nodes: 40 });
  for (const node of world.nodes) node.behavior = 'garbage';
  let tries = 0;
  for (let at = 0; at < 20; at += 1) tries += (await find(world)).trace.peers.reduce((sum, { tries: n }) => sum + n, 0);
  assert.equal(world.network.sent.length, tries);
  assert.ok(tries <= 2 * 40 + 20, `${tries} requests: the breakers of all peers are open after two`);
});

test('an answer that arrives after the end of a lookup is ignored', async () => {
  const world = new World({ nodes: 60 });
  world.network.provide(KEY, { id: world.nodes[0]!.self, url: URL });
  const [slow] = await firstPeers(world, 1);
  const late = Promise.withResolvers<PeerAnswer>();
  const getProviders = world.node.getProviders.bind(world.node);
  world.node.getProviders = (peer, key, signal) => (peer.id === slow ? late.promise : getProviders(peer, key, signal));
  const trace = newTrace();
  const arrived: string[] = [];
  const init = { trace, verdict: unproven, onProvider: ({ id }: { id: string }): void => void arrived.push(id) };
  const { value } = await world.during(() => world.driver.findProviders(ADDRESS, { ...init, signal: world.signal() }));
  const before = JSON.stringify([value, trace, arrived]);
  late.resolve({ providers: [{ id: peerIdOf('late'), url: URL }], value: undefined, closer: [] });
  await world.clock.settle();
  assert.equal(JSON.stringify([value, trace, arrived]), before);
});
