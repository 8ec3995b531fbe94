import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { suite, test } from 'node:test';
import { blake3 } from '@napi-rs/blake-hash';
import {
  encodeStripe,
  legacyVolumeId,
  MemoryVolume,
  ObjectStore,
  RecordType,
  stripeId,
  type NewRecord,
  type StripeLayout,
} from '@ron/cas';
import { isRonError, RonError } from '@ron/kernel';
import { Planner } from '../repair/planner.ts';
import { RepairQueue } from '../repair/repair-queue.ts';
import { RepairWorker } from '../repair/repair-worker.ts';
import { faulty, type Faulty } from '../testing/faulty-volume.ts';
import { surveyStripes } from './stripe-survey.ts';
import { Striper } from './striper.ts';
import { VolumeSet } from '../set/volume-set.ts';

const { signal } = new AbortController();
const pace = (): Promise<void> => Promise.resolve();

const chunkOf = (payload: Buffer): NewRecord => ({ type: RecordType.chunk, id: blake3(payload), payload });
/** Of different lengths: the last chunk of an object is shorter. */
const CHUNKS = [2000, 2000, 2000, 2000, 2000, 700].map((bytes) => chunkOf(randomBytes(bytes)));
const IDS = CHUNKS.map((record) => record.id);

interface Opened {
  readonly set: VolumeSet;
  readonly volumes: readonly Faulty[];
  readonly striper: Striper;
}

async function open(count: number): Promise<Opened> {
  const volumes = Array.from({ length: count }, (_, index) =>
    faulty(new MemoryVolume({ name: `v${index}`, bytes_max: 64 << 20 })),
  );
  const set = await VolumeSet.open({
    members: volumes.map(({ volume }) => ({ volume })),
    replication_factor: 2,
    signal,
  });
  for (const record of CHUNKS) await set.put([record], signal);
  return { set, volumes, striper: new Striper({ set, pace }) };
}

function combinations(from: number, choose: number): number[][] {
  if (choose === 0) return [[]];
  return Array.from({ length: from }, (_, last) => last).flatMap((last) =>
    combinations(last, choose - 1).map((rest) => [...rest, last]),
  );
}

/** Reclaims all unneeded space. */
async function reclaim(set: VolumeSet, isNeeded: (id: Uint8Array) => boolean): Promise<void> {
  await set.reclaim({ isNeeded, live_ratio: 1.1, seal_bytes_min: 0, pace, signal });
}

/** As the previous version wrote it: with the name of each volume. */
function namedStripe({ data_shards, shards }: StripeLayout): Buffer {
  const parts = shards.flatMap(({ id, bytes, home }) => {
    const size = Buffer.alloc(5);
    size.writeUInt32LE(bytes, 0);
    size.writeUInt8(home.length, 4);
    return [id, size, Buffer.from(home, 'utf8')];
  });
  return Buffer.concat([Buffer.from([2, data_shards, shards.length - data_shards, 0]), ...parts]);
}

const isChunk = (id: Uint8Array): boolean => IDS.some((each) => Buffer.compare(each, id) === 0);

suite('a stripe', () => {
  test('is on distinct volumes, contents stay where they are, and the next compaction removes copies', async () => {
    const { set, striper } = await open(9);
    const layout = await striper.make(IDS, signal);
    assert.equal(new Set(layout.shards.map((shard) => shard.home)).size, 9);
    const copies = (): number[] => IDS.map((id) => set.copiesOf('content', id));
    assert.ok(copies().every((count) => count >= 2));
    await reclaim(set, isChunk);
    assert.deepEqual(copies(), [1, 1, 1, 1, 1, 1]);
    assert.ok(IDS.every((id) => set.isDurable('content', id)));
    for (const { id, home } of layout.shards) assert.deepEqual(set.holdersOf('content', id)[0]?.id, home);
  });

  test('rebuilds every content when any three volumes are lost, within the read', async () => {
    const { set, striper } = await open(9);
    await striper.make(IDS, signal);
    await reclaim(set, isChunk);
    const members = set.members.map((member) => member.volume);
    for (const lost of combinations(9, 3)) {
      const rest = members.filter((_, index) => !lost.includes(index));
      const left = await VolumeSet.open({ members: rest.map((volume) => ({ volume })), replication_factor: 2, signal });
      const got: Uint8Array[] = [];
      for await (const batch of left.getMany(IDS, signal)) got.push(...batch);
      got.forEach((bytes, index) => assert.deepEqual(Buffer.from(bytes), CHUNKS[index]!.payload));
      for (const { id, payload } of CHUNKS) {
        const record = await left.get('content', id, signal);
        assert.deepEqual(Buffer.from(record!.payload), payload);
      }
    }
  });

  test('rebuilds contents even while its layout is being rewritten', async () => {
    const { set, striper, volumes } = await open(9);
    const layout = await striper.make(IDS, signal);
    await reclaim(set, isChunk);
    set.lifecycle.lose(layout.shards[0]!.home, 'test');
    for (const { inner } of volumes) inner.isDurable = (kind, id) => kind !== 'shard' && inner.has(kind, id);
    assert.ok(await set.get('content', IDS[0]!, signal));
  });

  test('rebuilds contents while a disk with another shard hangs', { timeout: 20_000 }, async () => {
    const { set, striper, volumes } = await open(9);
    const layout = await striper.make(IDS, signal);
    await reclaim(set, isChunk);
    set.lifecycle.lose(layout.shards[0]!.home, 'test');
    // One with a content, or one that knows the stripe.
    const isHome = ({ volume }: Faulty): boolean => volume.id === layout.shards[1]!.home;
    const isAsked = ({ volume }: Faulty): boolean => volume.has('shard', IDS[0]!);
    for (const slow of [volumes.find(isHome)!, volumes.find(isAsked)!]) {
      slow.hangs = true;
      assert.ok(await set.get('content', IDS[0]!, signal));
      slow.hangs = false;
    }
  });

  test('with too many lost shards fails with integrity, never with a wrong byte', async () => {
    const { set, striper } = await open(9);
    const layout = await striper.make(IDS, signal);
    await reclaim(set, isChunk);
    const gone = layout.shards.slice(0, 4).map((shard) => shard.home);
    for (const name of gone) set.lifecycle.lose(name, 'test');
    await assert.rejects(set.get('content', IDS[0]!, signal), (error) => isRonError(error, 'not_ready'));
    for (const name of gone) await set.lifecycle.setAbandoned(name, true, signal);
    await assert.rejects(set.get('content', IDS[0]!, signal), (error) => isRonError(error, 'integrity'));
    assert.ok(!set.isDurable('content', IDS[0]!), 'a client that sends it again repairs it');
    await set.put([CHUNKS[0]!], signal);
    assert.ok(await set.get('content', IDS[0]!, signal));
  });

  test('recorded only on a stale volume is kept while it can rebuild a content', async () => {
    const { set } = await open(9);
    const { shards } = await new Striper({ set, parity_shards: 1, pace }).make(IDS, signal);
    await reclaim(set, isChunk);
    const object = { ...chunkOf(Buffer.from('an object')), type: RecordType.object };
    await set.put([object], signal);
    const knower = set.member(shards[6]!.home);
    set.lifecycle.lose(knower.id, 'it is away');
    await set.put([{ type: RecordType.remove, id: object.id, payload: new Uint8Array(0) }], signal);
    set.lifecycle.lose(shards[0]!.home, 'it burnt');
    await set.lifecycle.setAbandoned(shards[0]!.home, true, signal);
    assert.equal(await set.get('content', IDS[0]!, signal), undefined);
    set.lifecycle.add({ volume: knower.volume });
    assert.ok(!set.member(knower.id).isCurrent);
    assert.equal(await set.reconcileStale(signal), 1);
    const { payload } = (await set.get('content', IDS[0]!, signal))!;
    assert.equal(Buffer.compare(payload, CHUNKS[0]!.payload), 0);
    // With one shard more gone it cannot.
    set.lifecycle.lose(knower.id, 'it is away');
    await set.put([{ type: RecordType.pin, id: object.id, payload: new Uint8Array(0) }], signal);
    set.lifecycle.lose(shards[1]!.home, 'it burnt');
    await set.lifecycle.setAbandoned(shards[1]!.home, true, signal);
    set.lifecycle.add({ volume: knower.volume });
    await set.reconcileStale(signal);
    assert.ok(!set.has('stripe', stripeId(shards)), 'a stripe that protects nothing is given up');
  });

  test('does not count if a shard cannot be written, read back or recorded, and then copies stay', async () => {
    for (const [call, error] of [
      ['put', () => new RonError('storage_full', 'no room')],
      ['get', () => new RonError('integrity', 'damaged')],
    ] as const) {
      const opened = await open(9);
      // One that has none of the contents gets a shard in any case.
      const target = opened.volumes.find(({ volume }) => IDS.every((id) => !volume.has('content', id)));
      const broken = target ?? opened.volumes[0]!;
      broken.fail(call, error);
      await assert.rejects(opened.striper.make(IDS, signal));
      assert.ok(IDS.every((id) => !opened.set.stripes.protects(id)));
      broken.fail(call, undefined);
      await reclaim(opened.set, isChunk);
      assert.ok(IDS.every((id) => opened.set.copiesOf('content', id) === 2));
      const left = await opened.set.inventory('content', undefined, 100);
      assert.equal(left.length, IDS.length, 'its parity is garbage');
      assert.equal(opened.set.holds.size, 0);
    }
  });

  test('is kept while one of its contents is needed, and dissolved when none is', async () => {
    const { set, striper } = await open(9);
    await striper.make(IDS, signal);
    await reclaim(set, (id) => Buffer.compare(id, IDS[2]!) === 0);
    assert.equal((await set.inventory('content', undefined, 100)).length, 9);
    await reclaim(set, () => false);
    assert.deepEqual(await set.inventory('stripe', undefined, 100), []);
    await reclaim(set, () => false);
    assert.deepEqual(await set.inventory('content', undefined, 100), []);
  });

  test('is kept while its parity is also a chunk of an object', async () => {
    const { set, striper } = await open(9);
    const { shards } = await striper.make(IDS, signal);
    await reclaim(set, isChunk);
    const sum = shards[6]!.id;
    assert.ok(set.isDurable('content', sum), 'it need not be stored again');
    await reclaim(set, (id) => Buffer.compare(id, sum) === 0);
    await reclaim(set, (id) => Buffer.compare(id, sum) === 0);
    for (const name of [shards[6]!, shards[7]!, shards[0]!].map((shard) => shard.home))
      set.lifecycle.lose(name, 'test');
    assert.ok(await set.get('content', sum, signal));
  });

  test('that could not be dissolved on a volume does not keep others from reclaiming space', async () => {
    const { set, striper, volumes } = await open(9);
    const { shards } = await striper.make(IDS, signal);
    volumes.find(({ volume }) => volume.id === shards[8]!.home)!.fail('put', () => new RonError('not_ready', 'EROFS'));
    const garbage = chunkOf(randomBytes(100));
    await set.member(shards[0]!.home).write([garbage], signal);
    await reclaim(set, () => false);
    assert.ok(!set.has('content', garbage.id));
    assert.ok(set.has('content', shards[7]!.id), 'a stripe that one volume still records is kept');
  });

  test('needs as many volumes as shards', async () => {
    const { striper } = await open(8);
    assert.match(striper.problem!, /8 volumes take records, a stripe needs 9: new ones have 5 chunks/);
    await assert.rejects(striper.make(IDS, signal), (error) => isRonError(error, 'not_ready'));
    assert.equal((await striper.make(IDS.slice(1), signal)).shards.length, 8);
  });

  test('has no two identical shards: zeros are their own parity', async () => {
    const { set, striper } = await open(9);
    const zeros = [500, 2000].map((bytes) => chunkOf(Buffer.alloc(bytes)));
    for (const record of zeros) await set.put([record], signal);
    const ids = zeros.map((record) => record.id);
    await assert.rejects(striper.make(ids, signal), (error) => isRonError(error, 'conflict'));
    assert.ok(ids.every((id) => !set.stripes.protects(id)));
  });

  test('copies stay while a volume with parity has not recorded it, and while two shards share a volume', async () => {
    const { set, striper, volumes } = await open(9);
    const made = await striper.make(IDS, signal);
    const { shards } = made;
    const id = stripeId(shards);
    const copies = (): number[] => IDS.map((each) => set.copiesOf('content', each));
    const before = copies();
    const home = set.member(shards.at(-1)!.home);
    const tell = (type: number, layout: StripeLayout): Promise<void> =>
      home.volume.put([{ type, id, payload: encodeStripe(layout) }], signal);
    await tell(RecordType.unstripe, made);
    await reclaim(set, isChunk);
    assert.deepEqual(copies(), before, 'it was known to two of three');
    await tell(RecordType.stripe, made);
    const crowded = shards.map((shard, index) => (index === 1 ? { ...shard, home: shards[0]!.home } : shard));
    await set.member(shards[0]!.home).volume.put([CHUNKS[1]!], signal);
    const payload = encodeStripe({ ...made, shards: crowded });
    for (const { volume } of volumes) {
      if (volume.has('stripe', id)) await volume.put([{ type: RecordType.stripe, id, payload }], signal);
    }
    await reclaim(set, isChunk);
    assert.ok(copies().every((count, index) => count >= before[index]!));
  });

  test('of a retired code is dissolved: its contents get copies again and a new stripe', async () => {
    const { set, striper } = await open(9);
    const parity = [1, 2, 3].map((seed) => {
      const payload = Buffer.alloc(2000, seed);
      return { type: RecordType.parity, id: blake3(payload), payload };
    });
    const shards = [...CHUNKS, ...parity].map(({ id, payload }, index) => ({
      id,
      bytes: payload.length,
      home: set.member(`v${index}`).id,
    }));
    const id = stripeId(shards);
    const payload = encodeStripe({ data_shards: 6, shards });
    payload[0] = 1;
    for (const [index, record] of [...CHUNKS, ...parity].entries()) {
      await set.member(`v${index}`).write([record], signal);
      if (index >= 6) await set.member(`v${index}`).write([{ type: RecordType.stripe, id, payload }], signal);
    }
    assert.ok(IDS.every((each) => !set.stripes.protects(each)));
    const queue = new RepairQueue();
    await new Planner({ set, queue }).plan(signal);
    assert.ok(!set.has('stripe', id), 'it is not ended');
    const worker = new RepairWorker({ set, queue, pacing: { take: () => Promise.resolve() } });
    queue.close();
    await worker.run({ stopping: signal, signal });
    assert.ok(IDS.every((each) => set.copiesOf('content', each) >= set.replication_factor));
    await striper.make(IDS, signal);
    assert.ok(IDS.every((each) => set.stripes.protects(each)));
  });

  test('of the previous version, with names of volumes, is read, and rewritten by the planner', async () => {
    const { set, striper } = await open(9);
    const made = await striper.make(IDS, signal);
    const id = stripeId(made.shards);
    const payload = namedStripe(made);
    const knowing = set.members.filter((member) => member.holds('stripe', id));
    for (const member of knowing) await member.write([{ type: RecordType.stripe, id, payload }], signal);
    assert.deepEqual(
      (await set.stripes.find(IDS[0]!, signal))?.shards.map((shard) => shard.home),
      made.shards.map((shard) => legacyVolumeId(shard.home)),
    );
    const queue = new RepairQueue();
    const planner = new Planner({ set, queue });
    const worker = new RepairWorker({ set, queue, pacing: { take: () => Promise.resolve() } });
    // Until each shard is found at home.
    for (let plans = 0; (await planner.plan(signal)).deficit > 0; plans++) {
      assert.ok(plans < 20, 'it is not written anew');
      while (!queue.isIdle) await worker.work((await queue.take(signal))!, signal);
    }
    const views = await set.stripes.views(id, signal);
    assert.ok(views.size >= 3 && [...views.values()].every((view) => view.isNamed === undefined));
    for (const { id: shard, home } of (await set.stripes.find(IDS[0]!, signal))!.shards) {
      assert.ok(set.member(home).holdsDurably('content', shard));
    }
  });

  test('parity stays while its stripe cannot be read', async () => {
    const { set, striper, volumes } = await open(9);
    await striper.make(IDS, signal);
    await reclaim(set, isChunk);
    for (const { volume, inner } of volumes) {
      const get = volume.get.bind(inner);
      inner.get = (kind, id, until) => (kind === 'stripe' ? Promise.reject(new Error('EIO')) : get(kind, id, until));
    }
    await reclaim(set, isChunk);
    assert.equal((await set.inventory('content', undefined, 100)).length, 9);
  });

  test('a volume that is lost during a compaction stops the removal of copies', async () => {
    const { set, striper } = await open(9);
    await striper.make(IDS, signal);
    const before = set.members.map((member) => IDS.filter((id) => member.holds('content', id)).length);
    set.holds.beginSweep();
    const survey = await surveyStripes(set, { isNeeded: isChunk, live_ratio: 1, seal_bytes_min: 0, pace, signal });
    const releases = (): number =>
      set.members.flatMap((member) => IDS.filter((id) => survey.isReleased(member, id))).length;
    assert.equal(releases(), before.reduce((sum, count) => sum + count, 0) - IDS.length);
    set.lifecycle.lose('v3', 'test');
    assert.equal(releases(), 0);
  });
});

suite('a run', () => {
  async function openLarge(count: number, chunks: number): Promise<Opened & { readonly ids: readonly Uint8Array[] }> {
    const opened = await open(count);
    const store = new ObjectStore({ volume: opened.set, cache_bytes: 0 });
    const writer = store.writer();
    const body = randomBytes(chunks * 65_536);
    await writer.write(body, signal);
    await writer.finish({}, signal);
    return {
      ...opened,
      ids: Array.from({ length: chunks }, (_, at) => blake3(body.subarray(at << 16, (at + 1) << 16))),
    };
  }

  test('makes stripes of the other chunks when one cannot be read', async () => {
    const { set, striper, volumes, ids } = await openLarge(9, 6);
    for (const { inner } of volumes) {
      const get = inner.get.bind(inner);
      const isBad = (id: Uint8Array): boolean => Buffer.compare(id, ids[2]!) === 0;
      inner.get = (kind, id, until) => (isBad(id) ? Promise.reject(new Error('EIO')) : get(kind, id, until));
    }
    const { failed, stripes } = await striper.run(signal);
    assert.deepEqual([failed, stripes], [1, 1]);
    for (const [index, id] of ids.entries()) assert.equal(set.stripes.protects(id), index !== 2);
  });

  test('with too few volumes for any stripe counts all chunks as lone, and keeps none in memory', async () => {
    const { set, striper, ids } = await openLarge(4, 20);
    const { lone, stripes } = await striper.run(signal);
    assert.deepEqual([lone, stripes], [20, 0]);
    assert.ok(ids.every((id) => set.stripes.lone.has(id)));
  });
});
