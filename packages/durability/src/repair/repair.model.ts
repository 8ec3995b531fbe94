/**
 * Models of repair concurrent with clients and compaction, on the real set, planner, queue, workers and bucket, with volumes
 * whose operations end when the explorer says so. Each model takes the part under test, so that a mutant can replace it.
 */
import assert from 'node:assert/strict';
import { blake3 } from '@napi-rs/blake-hash';
import { encodeStripe, RecordType, stripeId, type NewRecord } from '@ron/cas';
import type { Build, World } from '@ron/explorer';
import { TokenBucket } from '@ron/kernel';
import type { Planner } from './planner.ts';
import type { repair } from './repair.ts';
import type { RepairQueue } from './repair-queue.ts';
import type { RepairWorker } from './repair-worker.ts';
import { ModelVolume } from '../testing/model-volume.ts';
import type { VolumeSet } from '../set/volume-set.ts';

export interface Parts {
  VolumeSet: Pick<typeof VolumeSet, 'open'>;
  Planner: typeof Planner;
  RepairQueue: typeof RepairQueue;
  RepairWorker: typeof RepairWorker;
  repair: typeof repair;
}

const { signal } = new AbortController();
const EMPTY = new Uint8Array(0);
/** Volumes of models have no time limit. */
const withVolumeTimeout = <T>(work: Promise<T>): Promise<T> => work;
/** One that finds it, one after the failure, one that confirms, and some more. */
const PLANS_MAX = 6;

function chunk(text: string): NewRecord {
  const payload = Buffer.from(text);
  return { type: RecordType.chunk, id: blake3(payload), payload };
}

interface Opened {
  readonly set: VolumeSet;
  readonly volumes: readonly ModelVolume[];
}

/** A set of volumes; the records are on the first one, others on the second. */
async function open(
  parts: Parts,
  volumes: readonly ModelVolume[],
  records: readonly NewRecord[],
  replication_factor: number,
  others: readonly NewRecord[] = [],
): Promise<Opened> {
  const members = volumes.map((volume) => ({ volume }));
  const set = await parts.VolumeSet.open({ members, replication_factor, write_min: 1, signal });
  await volumes[0]!.put(records, signal);
  if (others.length > 0) await volumes[1]!.put(others, signal);
  for (const volume of volumes) volume.isLive = true;
  return { set, volumes };
}

/** An object is removed while a copy of it is made: it does not come back. */
export function repairAgainstDelete(parts: Parts): Build {
  return (world) => {
    const object = { ...chunk('object'), type: RecordType.object };
    const volumes = ['a', 'b'].map((name) => new ModelVolume(world, name, ['put', 'get']));
    let opened: Opened | undefined;
    world.task('client', async () => {
      opened = await open(parts, volumes, [object], 2);
      const { set } = opened;
      world.task('repair', async () => void (await set.copyObject(object.id, set.member('b'), signal)));
      await world.io('request');
      await set.put([{ type: RecordType.remove, id: object.id, payload: EMPTY }], signal);
      assert.ok(!set.has('object', object.id), 'the removal was acknowledged, and it is there');
    });
    return {
      final: () => {
        assert.ok(!opened!.set.has('object', object.id), 'a removed object came back');
        assert.ok(!volumes.some((volume) => volume.has('object', object.id)), 'a volume has it');
        assert.equal(opened!.set.removals.size, 0, 'something is kept of it');
      },
    };
  };
}

/** A volume is drained: its content moves and its space is reclaimed during a read. */
export function repairAgainstCompaction(parts: Parts): Build {
  return (world) => {
    const record = chunk('content');
    const volumes = ['a', 'b'].map((name) => new ModelVolume(world, name, ['put', 'get']));
    let opened: Opened | undefined;
    world.task('reader', async () => {
      opened = await open(parts, volumes, [record], 1);
      const { set } = opened;
      set.lifecycle.beginDrain('a');
      const pace = (): Promise<void> => Promise.resolve();
      world.task('repair', async () => {
        const job = { kind: 'content', id: record.id, class: 'rf' } as const;
        assert.equal(await parts.repair({ set, pace, withVolumeTimeout }, job, signal), 'repaired');
      });
      world.task('compactor', async () => {
        await world.io('compaction');
        await set.reclaim({ isNeeded: () => true, live_ratio: 1, seal_bytes_min: 0, pace, signal });
      });
      await world.io('request');
      const found = await set.get('content', record.id, signal);
      assert.ok(found !== undefined, 'a content that is needed was not found');
    });
    return { final: () => assert.ok(volumes[1]!.has('content', record.id), 'it has not moved') };
  };
}

/** Two shards of a stripe share a volume: one moves during a compaction. In the end all are where the stripe says. */
export function shardAgainstCompaction(parts: Parts): Build {
  return (world) => {
    const [first, second] = [chunk('first'), chunk('other')];
    const volumes = ['a', 'b', 'c'].map((name) => new ModelVolume(world, name, name === 'c' ? ['put'] : []));
    const sum = Buffer.from(first.payload.map((byte, at) => byte ^ second.payload[at]!));
    const parity = { type: RecordType.parity, id: blake3(sum), payload: sum };
    const shards = [first, second, parity].map(({ id, payload }, at) => ({
      id,
      bytes: payload.length,
      home: volumes[at === 0 ? 0 : 1]!.id,
    }));
    const layout = { data_shards: 2, shards };
    const stripe = { type: RecordType.stripe, id: stripeId(shards), payload: encodeStripe(layout) };
    let ended = 0;
    world.task('service', async () => {
      const { set } = await open(parts, volumes, [first], 1, [second, parity, stripe]);
      const end = async (): Promise<void> => {
        if (++ended < 2) return;
        const found = (await set.stripes.find(parity.id, signal))!;
        for (const { id, home } of found.shards) {
          assert.ok(set.member(home).holds('content', id), 'a shard is not where its stripe says');
        }
        assert.equal(found.shards[2]!.home, volumes[2]!.id, 'it has not moved');
      };
      const pace = (): Promise<void> => Promise.resolve();
      world.task('repair', async () => {
        const job = { kind: 'shard', id: parity.id, class: 'parity' } as const;
        assert.equal(await parts.repair({ set, pace, withVolumeTimeout }, job, signal), 'repaired');
        await end();
      });
      world.task('compactor', async () => {
        const isNeeded = (id: Uint8Array): boolean => Buffer.compare(id, parity.id) !== 0;
        // The stripes are surveyed before anything is removed.
        const survey = (): Promise<void> => world.io('survey');
        await set.reclaim({ isNeeded, live_ratio: 1, seal_bytes_min: 0, pace: survey, signal });
        await end();
      });
    });
    return { final: () => assert.equal(ended, 2) };
  };
}

/** A bucket that checks the tokens that it granted against the definition. */
class CountingBucket {
  granted = 0;
  readonly #bucket: TokenBucket;
  readonly #world: World;
  readonly #rate_per_s: number;
  readonly #burst: number;

  constructor(world: World, rate_per_s: number, burst: number) {
    this.#world = world;
    this.#rate_per_s = rate_per_s;
    this.#burst = burst;
    this.#bucket = new TokenBucket('model', { rate_per_s, burst, onTaken: (count) => void (this.granted += count) });
  }

  take(count: number, until: AbortSignal): Promise<void> {
    return this.#bucket.take(count, until);
  }

  check(moved_bytes: number): void {
    assert.ok(moved_bytes <= this.granted, `${moved_bytes} bytes were moved, ${this.granted} were paid for`);
    const allowed = this.#burst + (this.#world.now_ms() * this.#rate_per_s) / 1000;
    assert.ok(this.granted <= allowed + 1e-6, `exceeded: ${this.granted} of ${allowed}`);
  }
}

/** Copies are missing and a write fails: in the end all exist, and every byte was paced. */
export function copiesAreMade(parts: Parts): Build {
  return (world) => {
    const records = [chunk('one'), chunk('two')];
    const volumes = ['a', 'b'].map((name) => new ModelVolume(world, name, ['put']));
    const bucket = new CountingBucket(world, 1000, 6);
    let opened: Opened | undefined;
    world.task('planner', async () => {
      opened = await open(parts, volumes, records, 2);
      const { set } = opened;
      volumes[1]!.failsOnce = world.choose('the first copy', [RecordType.chunk, undefined]);
      const queue = new parts.RepairQueue({ capacity: 1 });
      const planner = new parts.Planner({ set, queue });
      const worker = new parts.RepairWorker({ set, queue, pacing: bucket, withVolumeTimeout });
      let isIdle = Promise.withResolvers<void>();
      for (const name of ['first worker', 'second worker']) {
        world.task(name, async () => {
          for (let job = await queue.take(signal); job !== undefined; job = await queue.take(signal)) {
            await worker.work(job, signal);
            if (queue.isIdle) isIdle.resolve();
          }
        });
      }
      // The next plan waits until every job has ended: otherwise plans could repeat forever.
      for (let plans = 1; (await planner.plan(signal)).deficit > 0; plans++) {
        assert.ok(plans < PLANS_MAX, 'copies are not made');
        if (!queue.isIdle) await isIdle.promise;
        isIdle = Promise.withResolvers();
      }
      queue.close();
    });
    return {
      invariant: () => bucket.check(volumes.reduce((sum, volume) => sum + volume.moved_bytes, 0)),
      final: () => {
        for (const { id } of records) assert.equal(opened!.set.copiesOf('content', id), 2, 'a copy is missing');
      },
    };
  };
}

/** Two plans at once, two workers: nothing is copied twice. */
export function plansNeverDuplicate(parts: Parts): Build {
  return (world) => {
    const record = chunk('one');
    const volumes = ['a', 'b'].map((name) => new ModelVolume(world, name, ['put']));
    world.task('service', async () => {
      const { set } = await open(parts, volumes, [record], 2);
      const queue = new parts.RepairQueue();
      for (const name of ['first worker', 'second worker']) {
        const worker = new parts.RepairWorker({
          set,
          queue,
          pacing: { take: () => Promise.resolve() },
          withVolumeTimeout,
        });
        world.task(name, () => worker.run({ stopping: signal, signal }));
      }
      let ended = 0;
      for (const name of ['first planner', 'second planner']) {
        const planner = new parts.Planner({ set, queue });
        world.task(name, async () => {
          await planner.plan(signal);
          if (++ended === 2) queue.close();
        });
      }
    });
    return { final: () => assert.equal(volumes[1]!.puts.length, 1, 'the same was copied more than once') };
  };
}
