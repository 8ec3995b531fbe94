import assert from 'node:assert/strict';
import { test } from 'node:test';
import { nameKey } from './keys.ts';
import { World } from './testing/world.ts';

const SIGNER = 'ab'.repeat(32);
const LABEL = 'docs/readme';
const KEY = nameKey(SIGNER, LABEL);
const VALUE = Buffer.from('a signed record');

function find(world: World, isValid?: (value: Uint8Array) => boolean) {
  return world.during(() => world.driver.findName(SIGNER, LABEL, { signal: world.signal(), isValid }));
}

function publish(world: World) {
  return world.during(() => world.driver.publishName(SIGNER, LABEL, VALUE, world.signal()));
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

test('distinct values are all returned; values that the caller refuses do not count', async () => {
  const world = new World({ nodes: 12 });
  for (const [at, node] of world.nodes.entries()) node.storeValue(KEY, Buffer.from(at < 9 ? `garbage ${at}` : 'good'));
  const { value: found } = await find(world, (value) => value.length === 4);
  assert.deepEqual(found.values, [Buffer.from('good')]);
  assert.equal(found.answers, 3, 'all known peers were queried, as fewer than 5 have it');
  assert.equal(found.complete, true);
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
