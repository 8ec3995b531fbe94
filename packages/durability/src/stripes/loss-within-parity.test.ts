/** The promise of m parity shards: any m volumes may be lost without losing an object. */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { test } from 'node:test';
import { Compactor, ObjectStore, RecordType } from '@ron/cas';
import { TokenBucket } from '@ron/kernel';
import type { Address } from '@ron/proto';
import { Planner } from '../repair/planner.ts';
import { RepairQueue } from '../repair/repair-queue.ts';
import { RepairWorker } from '../repair/repair-worker.ts';
import { Striper } from './striper.ts';
import { Directories } from '../testing/directories.ts';
import { whileAbsent } from '../testing/while-absent.ts';
import { VolumeSet } from '../set/volume-set.ts';

const { signal } = new AbortController();
const CHUNK = 65_536;
const NAMES = ['a', 'b', 'c', 'd', 'e', 'f'];
const SHAPE = { replication_factor: 1, lone_copies: 3 };
const EC = { data_shards: 4, parity_shards: 2 };

const large = randomBytes(13 * CHUNK + 7);
const BODIES: readonly Buffer[] = [
  ...[0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, 3 * CHUNK, 5 * CHUNK, 8 * CHUNK + 10].map((bytes) =>
    randomBytes(bytes),
  ),
  large,
  // One chunk of it is new: no other chunk of its object can share a stripe with it.
  Buffer.concat([large.subarray(0, 6 * CHUNK), randomBytes(CHUNK), large.subarray(7 * CHUNK)]),
  // Zeros are their own parity.
  Buffer.alloc(6 * CHUNK),
  Buffer.alloc(3 * CHUNK + 100),
  Buffer.concat([randomBytes(CHUNK), Buffer.alloc(CHUNK), Buffer.alloc(50)]),
];

function combinations(from: number, choose: number): number[][] {
  if (choose === 0) return [[]];
  return Array.from({ length: from }, (_, last) => last).flatMap((last) =>
    combinations(last, choose - 1).map((rest) => [...rest, last]),
  );
}

async function store(set: VolumeSet, bodies: readonly Buffer[]): Promise<Address[]> {
  const objects = new ObjectStore({ volume: set, cache_bytes: 0 });
  const addresses: Address[] = [];
  for (const body of bodies) {
    const writer = objects.writer();
    await writer.write(body, signal);
    addresses.push((await writer.finish({}, signal)).address);
  }
  return addresses;
}

async function assertServed(set: VolumeSet, addresses: readonly Address[]): Promise<void> {
  const objects = new ObjectStore({ volume: set, cache_bytes: 0 });
  for (const [index, address] of addresses.entries()) {
    const object = await objects.open(address, signal);
    assert.ok(object !== undefined, `an object of ${BODIES[index]!.length} bytes is gone`);
    const parts: Buffer[] = [];
    for await (const batch of object.read(0, object.size, signal)) parts.push(Buffer.concat(batch));
    assert.ok(Buffer.concat(parts).equals(BODIES[index]!), `${BODIES[index]!.length} bytes are others`);
  }
}

class Maintenance {
  readonly set: VolumeSet;
  readonly striper: Striper;
  readonly planner: Planner;
  readonly #queue = new RepairQueue();
  readonly #worker: RepairWorker;

  constructor(set: VolumeSet) {
    this.set = set;
    this.planner = new Planner({ set, queue: this.#queue });
    this.#worker = new RepairWorker({ set, queue: this.#queue, pacing: { take: () => Promise.resolve() } });
    this.striper = new Striper({ set, ...EC, pace: () => Promise.resolve() });
  }

  /** Like a requested repair, followed by a compaction. */
  async run(): Promise<void> {
    await this.#plan();
    await this.striper.run(signal);
    await this.#plan();
    await this.compact();
  }

  async #plan(): Promise<void> {
    const stop = new AbortController();
    const working = this.#worker.run({ stopping: stop.signal, signal });
    for (let plans = 0; (await this.planner.plan(signal)).deficit > 0; plans++) {
      assert.ok(plans < 10, JSON.stringify(this.planner.report));
      while (!this.#queue.isIdle) await new Promise((resolve) => void setImmediate(resolve));
    }
    stop.abort();
    await working;
  }

  async compact(): Promise<void> {
    const objects = new ObjectStore({ volume: this.set, cache_bytes: 0 });
    const bucket = new TokenBucket('test', { rate_per_s: 1e12, burst: 2 ** 32 });
    const init = { store: objects, uploads: undefined, live_ratio: 1.1, seal_bytes_min: 0, bucket };
    await new Compactor(init).run(signal);
  }
}

/** It is gone for good: while it could come back, nothing is reclaimed. */
async function abandon(set: VolumeSet, name: string): Promise<void> {
  set.lifecycle.lose(name, 'test');
  await set.lifecycle.setAbandoned(name, true, signal);
}

async function assertAnyTwoMayGo(directories: Directories, addresses: readonly Address[]): Promise<void> {
  for (const lost of combinations(NAMES.length, 2)) {
    const left = NAMES.filter((_, index) => !lost.includes(index));
    await using set = await directories.open(left, SHAPE);
    await assertServed(set, addresses);
  }
}

test('without copies, any two directories of 4+2 may be lost without losing an object of any size', async () => {
  using directories = new Directories();
  let addresses: Address[];
  {
    await using set = await directories.open(NAMES, SHAPE);
    addresses = await store(set, BODIES);
    const maintenance = new Maintenance(set);
    await maintenance.run();
    const { stripes, failed, lone } = maintenance.striper.report;
    assert.ok(stripes > 8 && failed === 0, JSON.stringify(maintenance.striper.report));
    assert.ok(lone <= 6, `${lone} chunks have no stripe`);
    const again = await maintenance.striper.run(signal);
    assert.deepEqual([again.stripes, again.lone], [0, lone], 'a second run found something to do');
  }
  await assertAnyTwoMayGo(directories, addresses);
});

test('two are lost and replaced, two others are lost: no object is lost, even if it was put meanwhile', async () => {
  using directories = new Directories();
  await using set = await directories.open(NAMES, SHAPE);
  const addresses = await store(set, BODIES.slice(0, 10));
  const maintenance = new Maintenance(set);
  await maintenance.run();
  const waves = [
    ['a', 'b'],
    ['c', 'd'],
    ['e', 'f'],
  ];
  for (const [wave, names] of waves.entries()) {
    for (const name of names) await abandon(set, name);
    await assertServed(set, addresses);
    // With four volumes for six shards, some have to share.
    addresses.push(...(await store(set, BODIES.slice(10 + wave, 11 + wave))));
    await maintenance.run();
    assert.ok(maintenance.planner.report.crowded > 0, 'nothing is crowded');
    await assertServed(set, addresses);
    for (const name of names) {
      await set.lifecycle.remove(name, { signal });
      set.lifecycle.add({ volume: await directories.volume(`${name}${wave}`) });
    }
    await maintenance.run();
    assert.equal(maintenance.planner.report.crowded, 0);
    await set.stripes.walk(signal, ({ layout }) => {
      assert.equal(new Set(layout!.shards.map((shard) => shard.home)).size, layout!.shards.length);
    });
  }
  const names = set.members.map((member) => member.name);
  for (const lost of combinations(names.length, 2)) {
    const away = lost.map((index) => set.member(names[index]!));
    await whileAbsent(away, () => assertServed(set, addresses));
  }
});

test('chunks that fit no stripe have copies: zeros, which are their own parity, and a single chunk', async () => {
  using directories = new Directories();
  await using set = await directories.open(NAMES, SHAPE);
  const bodies = [Buffer.alloc(2 * CHUNK + 100), Buffer.alloc(4 * CHUNK, 'the same')];
  const addresses = await store(set, bodies);
  const maintenance = new Maintenance(set);
  await maintenance.run();
  assert.equal(maintenance.striper.report.lone, 3);
  const contents = await set.inventory('content', undefined, 100);
  for (const { id, type } of contents) {
    if (type === RecordType.chunk) assert.equal(set.copiesOf('content', id), 3);
  }
  assert.equal(addresses.length, bodies.length);
});

test('with three domains of three directories, a whole domain may be lost, and badly placed shards move', async () => {
  using directories = new Directories();
  const domains = ['x', 'y', 'z'];
  const names = domains.flatMap((domain) => [1, 2, 3].map((number) => `${domain}${number}`));
  const volumes = await Promise.all(names.map((name) => directories.volume(name, { domain: name[0]! })));
  await using set = await VolumeSet.open({ members: volumes.map((volume) => ({ volume })), ...SHAPE, signal });
  const addresses = await store(set, BODIES);
  const maintenance = new Maintenance(set);
  await maintenance.run();
  const assertSpread = async (): Promise<void> => {
    assert.equal(maintenance.planner.report.crowded, 0);
    for (const domain of domains) {
      const away = set.members.filter((member) => member.domain === domain);
      await whileAbsent(away, () => assertServed(set, addresses));
    }
  };
  await assertSpread();
  // While a domain is absent, its records are rebuilt in the others.
  for (const name of ['y1', 'y2', 'y3']) await abandon(set, name);
  await maintenance.run();
  for (const name of ['y1', 'y2', 'y3']) {
    await set.lifecycle.remove(name, { signal });
    set.lifecycle.add({ volume: await directories.volume(`${name} new`, { domain: 'y' }) });
  }
  await maintenance.run();
  await assertSpread();
});
