import assert from 'node:assert/strict';
import { test } from 'node:test';
import { nameKey } from './keys.ts';
import { nameSigner, valueOf } from '../publish/testing.ts';
import { World } from './testing/world.ts';

const LABEL = 'docs/readme';
const signer = nameSigner();
const KEY = nameKey(signer.key, LABEL);
const VALUE = valueOf(signer.record(LABEL));

const hexOf = (bytes: Uint8Array): string => Buffer.from(bytes).toString('hex');

function find(world: World) {
  return world.during(() => world.driver.findName(signer.key, LABEL, { signal: world.signal() }));
}

function publish(world: World) {
  return world.during(() => world.driver.publishName(signer.key, LABEL, VALUE, world.signal()));
}

test('a published name lies at the 20 closest peers and here, and a lookup ends after 5 answers', async () => {
  const world = new World({ nodes: 60 });
  const { value: published } = await publish(world);
  assert.ok(published.stored > 10, `a quorum of 20 stored it, not ${published.stored}`);
  const closest = world.network.closestTo(KEY, 21).filter((node) => node !== world.node);
  for (const node of closest.slice(0, 20)) assert.deepEqual(node.valueOf(KEY), VALUE);
  assert.deepEqual(world.node.valueOf(KEY), VALUE);
  const { value: found } = await find(world);
  assert.deepEqual(found.values, [VALUE]);
  assert.ok(found.answers >= 5);
  assert.equal(found.complete, true);
});

test('distinct values are all returned; garbage, other names and wrong signatures do not count', async () => {
  const world = new World({ nodes: 12 });
  const rival = valueOf(signer.record(LABEL));
  const unsigned = Uint8Array.from(VALUE).fill(0, 0, 64);
  const values = [
    Buffer.from('garbage'),
    valueOf(signer.record('other')),
    valueOf(nameSigner().record(LABEL)),
    unsigned,
  ];
  for (const [at, node] of world.nodes.entries()) {
    node.storeValue(KEY, at < 8 ? values[at % values.length]! : at < 10 ? VALUE : rival);
  }
  const { value: found } = await find(world);
  assert.deepEqual(new Set(found.values.map(hexOf)), new Set([VALUE, rival].map(hexOf)));
  assert.equal(found.answers, 4, 'all known peers were queried, as fewer than 5 have a valid record');
  assert.equal(found.complete, true);
});

test('replayed values that have expired are not answers', async () => {
  const world = new World({ nodes: 12 });
  const expired = valueOf(signer.record(LABEL, { not_after: Math.floor(world.clock.wall_ms() / 1000) }));
  for (const [at, node] of world.nodes.entries()) node.storeValue(KEY, at < 11 ? expired : VALUE);
  const { value: found } = await find(world);
  assert.deepEqual(found.values, [VALUE]);
  assert.equal(found.answers, 1);
});

test('a name that no peer has is reported as such', async () => {
  const world = new World({ nodes: 30 });
  const { value: found } = await find(world);
  assert.deepEqual([found.empty, found.answers, found.complete], ['none_has_it', 0, true]);
});

test('publishing returns with the quorum, while peers that stall are given up in the background', async () => {
  const world = new World({ nodes: 10 });
  const stalled = world.nodes.slice(0, 4);
  const putValue = world.node.putValue.bind(world.node);
  world.node.putValue = (peer, key, value, signal) => {
    const node = world.network.nodes.get(peer.id)!;
    if (stalled.includes(node)) node.behavior = 'silent';
    return putValue(peer, key, value, signal);
  };
  const { value, took_ms } = await publish(world);
  assert.ok(value.stored >= 6);
  assert.ok(took_ms < 300, `took ${took_ms} ms`);
  assert.ok(world.network.sent.some(({ outcome }) => outcome === 'running'));
  await world.driver[Symbol.asyncDispose]();
  assert.ok(world.network.sent.every(({ outcome }) => outcome !== 'running'));
});

test('publishing without peers stores the record here, and ends', async () => {
  const world = new World({ nodes: 0 });
  const { value } = await publish(world);
  assert.equal(value.stored, 0);
  assert.deepEqual(world.node.valueOf(KEY), VALUE);
});
