import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ReceiptDto, ResolveDto } from '@ron/proto';
import { send } from '@ron/testkit/service';
import { DhtDriver } from '../dht/driver.ts';
import { providerKey } from '../dht/keys.ts';
import { MemoryNetwork, peerIdOf } from '../dht/testing/network.ts';
import { listen } from '../resolve/testing/listen.ts';
import { addressOf } from '../resolve/testing/open-resolving.ts';

const ADDRESS = addressOf('object');
/** Long enough that the peers that answer do so before the next hedge, on a busy machine too. */
const HEDGE_MS = 400;
const [PROVEN, UNPROVEN, LYING] = [peerIdOf('proven'), peerIdOf('unproven'), peerIdOf('lying')];

/** A node with 12 known peers: the closest two stall, the third has an open breaker, the others know three providers. */
async function listenAmongStalledPeers() {
  const network = new MemoryNetwork({ latency_ms: () => 1 });
  network.grow(12);
  const node = network.add('self');
  network.fillTables();
  const key = providerKey(ADDRESS);
  const closest = network.closestTo(key, 13).filter((other) => other !== node);
  for (const other of closest.slice(3)) {
    for (const id of [PROVEN, UNPROVEN, LYING]) other.store(key, { id, url: `http://127.0.0.1:7101/${id}` });
  }
  for (const stalled of closest.slice(0, 2)) stalled.behavior = 'silent';
  const listening = await listen({ dht: () => driver });
  const { breakers, evidence } = listening;
  const driver = new DhtDriver({ peers: node, breakers, limits: () => ({ alpha: 2, beta: 2, hedge_ms: HEDGE_MS }) });
  for (let at = 0; at < 10; at += 1) breakers.admit(closest[2]!.self)?.settle('failure');
  evidence.verdicts.set(PROVEN, 'proven').set(LYING, 'failed');
  evidence.latencies.set(PROVEN, 7);
  return { listening, stalled: closest.slice(0, 2).map(({ self }) => self), broken: closest[2]!.self };
}

test('a receipt explains a lookup in which two peers stalled: peers, hedges, breakers and ranking', async () => {
  const { listening, stalled, broken } = await listenAmongStalledPeers();
  await using x = listening;
  const { status, text } = await send(x.url, 'GET', `/resolve/${ADDRESS}?receipt=1`);
  assert.equal(status, 200, text);
  const body = JSON.parse(text) as ResolveDto & { readonly receipt: ReceiptDto };
  const { peers, hedges, breakers, ranking, took_ms } = body.receipt;

  const outcomes = new Map(peers.map((each) => [each.peer, each]));
  for (const id of stalled) {
    const { outcome, wave, took_ms: waited_ms } = outcomes.get(id)!;
    assert.deepEqual([outcome, wave], ['canceled', 'alpha']);
    assert.ok(waited_ms >= HEDGE_MS - 1, 'it was canceled when the hedge had answered');
  }
  assert.deepEqual([outcomes.get(broken)?.outcome, outcomes.get(broken)?.tries], ['breaker_open', 0]);
  const beta = peers.filter(({ wave }) => wave === 'beta');
  assert.equal(beta.length, 2);
  assert.ok(beta.some(({ outcome, providers }) => outcome === 'answered' && providers === 3));
  assert.ok(beta.every(({ started_ms }) => started_ms >= HEDGE_MS - 1));

  assert.deepEqual([hedges.started, hedges.refused], [2, 0]);
  assert.ok(hedges.won >= 1);
  assert.deepEqual(breakers, [{ target: broken, state: 'open' }]);
  assert.deepEqual(
    ranking.map(({ id, rank, proof, latency_ms }) => [id, rank, proof, latency_ms]),
    [
      [PROVEN, 1, 'proven', 7],
      [UNPROVEN, 2, 'unproven', null],
      [LYING, 3, 'failed', null],
    ],
  );
  assert.deepEqual(
    body.providers.map(({ id }) => id),
    [PROVEN, UNPROVEN],
    'a provider that failed its probe is not listed',
  );
  assert.ok(took_ms >= HEDGE_MS - 1);
});
