/**
 * Four volumes lose power together, and some of their disks stay lost. After every crash point of small histories, in
 * possible states of the disks, acknowledged objects are whole, removed objects are gone, and maintenance restores the
 * redundancy for the next loss. RON_LONG=1 tries every choice of lost disks, more disk states and more placements.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { blake3 } from '@napi-rs/blake-hash';
import { Compactor, LocalVolume, memoryFiles, ObjectStore } from '@ron/cas';
import { mutant } from '@ron/explorer';
import { TokenBucket } from '@ron/kernel';
import type { File, FileSystem } from '@ron/log';
import { CrashFileSystem } from '@ron/log/testing';
import { formatAddress, type Address } from '@ron/proto';
import { Planner } from '../src/repair/planner.ts';
import { RepairQueue } from '../src/repair/repair-queue.ts';
import { RepairWorker } from '../src/repair/repair-worker.ts';
import { Striper } from '../src/stripes/striper.ts';
import { VolumeSet } from '../src/set/volume-set.ts';
import { installSeededRandom, randomFrom } from '../src/testing/seeded-random.ts';
import { whileAbsent } from '../src/testing/while-absent.ts';

const { signal } = new AbortController();
const IS_LONG = process.env['RON_LONG'] === '1';
const NAMES = ['a', 'b', 'c', 'd'];
const CHUNK = 1024;
/** Placement depends on the volume ids, and they on the seed. The planted bugs are within reach of each of these. */
const SEEDS = IS_LONG ? [1, 2, 3, 4] : [1];
const IMAGES_MAX = IS_LONG ? 8 : 2;
/** Maintenance runs after each check whose number is 1 modulo this. */
const UPKEEP_EVERY = IS_LONG ? 1 : 6;

interface Parts {
  VolumeSet: Pick<typeof VolumeSet, 'open'>;
  Striper: typeof Striper;
}
const PARTS: Parts = { VolumeSet, Striper };

interface Shape {
  readonly replication_factor: number;
  readonly parity_shards: number;
  /** Disks that may be lost in the crash. */
  readonly missing_max: number;
}
const ONE: Shape = { replication_factor: 2, parity_shards: 1, missing_max: 1 };
const TWO: Shape = { replication_factor: 3, parity_shards: 2, missing_max: 2 };

const pace = (): Promise<void> => Promise.resolve();
const nextTurn = (): Promise<void> => new Promise((resolve) => void setImmediate(resolve));
const bytesOf = (size: number, seed: number): Buffer => {
  const bytes = Buffer.alloc(size);
  for (let at = 0; at < size; at++) bytes[at] = (seed * 31 + at * 7 + (at >> 8) * 13) & 0xff;
  return bytes;
};

/** Lets other operations run between the call of a sync and its effect. */
function withSlowSyncs(disk: CrashFileSystem): FileSystem {
  const slowed = async (opened: Promise<File>): Promise<File> => {
    const file = await opened;
    return { ...file, sync: () => nextTurn().then(() => file.sync()) };
  };
  return {
    create: (path) => slowed(disk.create(path)),
    open: (path, access) => slowed(disk.open(path, access)),
    list: (dir) => disk.list(dir),
    makeDir: (dir) => disk.makeDir(dir),
    rename: (from, to) => disk.rename(from, to),
    remove: (path) => disk.remove(path),
    syncDir: (dir) => disk.syncDir(dir),
  };
}

async function openSet(parts: Parts, shape: Shape, names: readonly string[], fs: FileSystem): Promise<VolumeSet> {
  const init = { fs, segment_bytes: 16_384, flush_after_ms: Infinity, signal };
  const open = (name: string): Promise<LocalVolume> =>
    LocalVolume.open({ ...init, dir: `/${name}`, name, indexFs: memoryFiles() });
  const volumes = await Promise.all(names.map(open));
  const { replication_factor, parity_shards } = shape;
  const members = volumes.map((volume) => ({ volume }));
  return await parts.VolumeSet.open({ members, replication_factor, lone_copies: parity_shards + 1, signal });
}

const storeOn = (set: VolumeSet): ObjectStore =>
  new ObjectStore({ volume: set, chunk_bytes: CHUNK, batch_bytes: 1, cache_bytes: 0 });

/** Repairs until there is no deficit, makes stripes, and reclaims the copies that the stripes replace. */
class Upkeep {
  readonly #set: VolumeSet;
  readonly #striper: Striper;

  constructor(parts: Parts, shape: Shape, set: VolumeSet) {
    this.#set = set;
    this.#striper = new parts.Striper({ set, data_shards: 2, parity_shards: shape.parity_shards, pace });
  }

  async repair(): Promise<void> {
    const queue = new RepairQueue();
    const planner = new Planner({ set: this.#set, queue });
    const worker = new RepairWorker({ set: this.#set, queue, pacing: { take: pace } });
    for (let plans = 0; (await planner.plan(signal)).deficit > 0; plans++) {
      assert.ok(plans < 6, `not repaired: ${JSON.stringify(planner.report)}`);
      while (queue.depth > 0) await worker.work((await queue.take(signal))!, signal);
    }
  }

  async makeStripes(): Promise<void> {
    const { failed } = await this.#striper.run(signal);
    assert.equal(failed, 0, 'failed to make stripes');
  }

  async stripe(): Promise<void> {
    await this.makeStripes();
    await this.repair();
  }

  async compact(): Promise<void> {
    const bucket = new TokenBucket('test', { rate_per_s: 2 ** 32, burst: 2 ** 32 });
    const init = { store: storeOn(this.#set), uploads: undefined, bucket, live_ratio: 1.1, seal_bytes_min: 1 };
    await new Compactor(init).run(signal);
  }
}

interface Change {
  readonly address: Address;
  readonly isThere: boolean;
  readonly begun: number;
  acknowledged: number;
}

/** Runs operations on a set of volumes and records when each was acknowledged. */
class History {
  readonly shape: Shape;
  readonly disk = new CrashFileSystem();
  readonly bodies = new Map<Address, Buffer>();
  /** Volumes that were declared lost, and the disk operation at which that happened. */
  readonly lost: { readonly name: string; readonly at: number }[] = [];
  readonly #parts: Parts;
  readonly #changes: Change[] = [];
  #set: VolumeSet | undefined;

  constructor(parts: Parts, shape: Shape) {
    this.#parts = parts;
    this.shape = shape;
  }

  async run(steps: readonly Step[]): Promise<void> {
    this.#set = await openSet(this.#parts, this.shape, NAMES, withSlowSyncs(this.disk));
    for (const step of steps) await step(this);
    await this.#set.close();
  }

  get upkeep(): Upkeep {
    return new Upkeep(this.#parts, this.shape, this.#set!);
  }

  async put(size: number, seed: number): Promise<void> {
    const bytes = bytesOf(size, seed);
    const address = formatAddress(blake3(bytes));
    this.bodies.set(address, bytes);
    await this.#change(address, true, async () => {
      const writer = storeOn(this.#set!).writer();
      await writer.write(bytes, signal);
      await writer.finish({}, signal);
    });
  }

  async remove(size: number, seed: number): Promise<void> {
    const address = formatAddress(blake3(bytesOf(size, seed)));
    await this.#change(address, false, () => storeOn(this.#set!).remove(address, signal));
  }

  /** Declares a volume lost permanently. Nothing is reclaimed while a volume may return. */
  async lose(name: string): Promise<void> {
    this.#set!.lifecycle.lose(name, 'test');
    this.lost.push({ name, at: this.disk.operations });
    await this.#set!.lifecycle.setAbandoned(name, true, signal);
  }

  async #change(address: Address, isThere: boolean, work: () => Promise<void>): Promise<void> {
    const change = { address, isThere, begun: this.disk.operations, acknowledged: Infinity };
    this.#changes.push(change);
    await work();
    change.acknowledged = this.disk.operations;
  }

  /** Permitted states after a crash at `point`: the last acknowledged change, or any change begun after it. */
  allowed(address: Address, point: number): boolean[] {
    const mine = this.#changes.filter((change) => change.address === address);
    const last = mine.findLastIndex((change) => change.acknowledged <= point);
    const values = mine.slice(last + 1).filter((change) => change.begun < point);
    return [mine[last]?.isThere ?? false, ...values.map((change) => change.isThere)];
  }

  /** Opens the disks in the state that a crash left, and asserts the guarantees. */
  async check(
    point: number,
    image: Map<string, Uint8Array>,
    missing: readonly string[],
    isGoingOn: boolean,
  ): Promise<void> {
    const left = NAMES.filter((name) => !missing.includes(name));
    await using set = await openSet(this.#parts, this.shape, left, new CrashFileSystem(image));
    const found = await this.#assertPromised(set, point);
    // Maintenance needs as many volumes as copies.
    if (!isGoingOn || missing.length > 0) return;
    const upkeep = new Upkeep(this.#parts, this.shape, set);
    await upkeep.repair();
    await upkeep.stripe();
    await upkeep.compact();
    for (const away of choices(this.shape.missing_max)) {
      const members = away.map((name) => set.member(name));
      await whileAbsent(members, () => this.#assertThere(set, found));
    }
  }

  async #assertPromised(set: VolumeSet, point: number): Promise<Address[]> {
    const store = storeOn(set);
    const found = [...this.bodies.keys()].filter((address) => store.has(address));
    for (const address of this.bodies.keys()) {
      const allowed = this.allowed(address, point);
      const isThere = found.includes(address);
      assert.ok(allowed.includes(isThere), `found: ${isThere}, promised: ${allowed.join(' or ')}`);
    }
    await this.#assertThere(set, found);
    return found;
  }

  async #assertThere(set: VolumeSet, addresses: readonly Address[]): Promise<void> {
    const store = storeOn(set);
    for (const address of addresses) {
      const object = await store.open(address, signal);
      assert.ok(object !== undefined, 'an object is missing');
      const parts: Uint8Array[] = [];
      for await (const part of object.read(0, object.size, signal)) parts.push(Buffer.concat(part));
      assert.deepEqual(Buffer.concat(parts), this.bodies.get(address), 'a visible object is not whole');
    }
  }
}

type Step = (history: History) => Promise<void> | void;

/** All subsets of `count` volumes. */
function choices(count: number, from = 0): string[][] {
  if (count === 0) return [[]];
  return NAMES.slice(from).flatMap((name, at) => choices(count - 1, from + at + 1).map((rest) => [name, ...rest]));
}

/** Returns the number of disk states that were checked. */
async function checkEveryCrash(steps: readonly Step[], shape: Shape, parts = PARTS, seed = SEEDS[0]!): Promise<number> {
  using _ = installSeededRandom(seed);
  const history = new History(parts, shape);
  await history.run(steps);
  const random = randomFrom(7);
  let checks = 0;
  for (let point = 0; point <= history.disk.operations; point++) {
    const gone = history.lost.filter((each) => each.at < point).map((each) => each.name);
    const all = [...choices(0), ...choices(shape.missing_max)].filter(
      (each) => new Set([...each, ...gone]).size <= shape.missing_max,
    );
    for (const image of history.disk.imagesAt(point, IMAGES_MAX, random)) {
      const some = IS_LONG ? all : [[], all[Math.floor(random() * all.length)]!];
      for (const missing of some) {
        checks += 1;
        const away = [...new Set([...missing, ...gone])];
        const isGoingOn = checks % UPKEEP_EVERY === 1;
        await history.check(point, image, away, isGoingOn).catch((error: unknown) => {
          const what = error instanceof Error ? error.message : String(error);
          throw new Error(`crash after operation ${point}, lost: ${away.join() || 'none'}: ${what}`, { cause: error });
        });
      }
    }
  }
  return checks;
}

const WRITES: readonly Step[] = [
  (history) => history.put(100, 1),
  (history) => history.put(2 * CHUNK + 10, 2),
  (history) => Promise.all([history.put(300, 3), history.put(CHUNK + 5, 4)]).then(() => undefined),
  (history) => history.remove(100, 1),
  (history) => history.put(100, 1),
];
const STRIPES: readonly Step[] = [
  (history) => history.put(4 * CHUNK, 5),
  (history) => history.put(3 * CHUNK, 6),
  (history) => history.upkeep.stripe(),
  (history) => history.upkeep.compact(),
  (history) => history.put(2 * CHUNK, 7),
  (history) => history.remove(4 * CHUNK, 5),
  (history) => history.upkeep.stripe(),
  (history) => history.upkeep.compact(),
];
const LOSS: readonly Step[] = [
  (history) => history.put(4 * CHUNK, 8),
  (history) => history.put(50, 9),
  (history) => history.upkeep.stripe(),
  (history) => history.lose('b'),
  (history) => history.upkeep.compact(),
  (history) => history.upkeep.repair(),
  (history) => history.upkeep.compact(),
];

/** Copies are reclaimed without a repair pass that verifies the stripes first. */
const UNCHECKED: readonly Step[] = [
  (history) => history.put(4 * CHUNK, 5),
  (history) => history.upkeep.makeStripes(),
  (history) => history.upkeep.compact(),
];

const HISTORIES = { writes: WRITES, 'making stripes': STRIPES, repairs: LOSS, compaction: UNCHECKED };

for (const [name, shape] of Object.entries({ 'one disk is': ONE, 'two disks are': TWO })) {
  for (const [what, steps] of Object.entries(HISTORIES)) {
    test(`no object is lost when the power fails during ${what} and ${name} lost`, async (t) => {
      for (const seed of SEEDS) {
        const checks = await checkEveryCrash(steps, shape, PARTS, seed);
        t.diagnostic(`${checks} disk states were checked with seed ${seed}`);
        assert.ok(checks > 100, `only ${checks} disk states were checked`);
      }
    });
  }
}

interface Edit {
  readonly part: keyof Parts;
  readonly file: string;
  readonly find: string;
  readonly replace: string;
}

interface Planted {
  readonly bug: string;
  readonly edits: readonly Edit[];
  readonly history: readonly Step[];
  readonly shape: Shape;
  readonly caught: RegExp;
}

const PLANTED: readonly Planted[] = [
  {
    bug: 'a copy counts before it is written',
    edits: [
      {
        part: 'VolumeSet',
        file: '../src/placement/copies.ts',
        find: 'this.#init.write(member).then(',
        replace: 'this.#init.write(member).catch(() => undefined);\n    Promise.resolve().then(',
      },
    ],
    // The parts of larger objects are verified before the object is acknowledged.
    history: [(history) => history.put(100, 1), (history) => history.put(300, 3)],
    shape: ONE,
    caught: /promised: true/,
  },
  {
    bug: 'parity shards are collected as garbage',
    edits: [
      {
        part: 'VolumeSet',
        file: '../src/repair/reclaim-set.ts',
        find: '!set.holds.isFree(id) || survey.isHome(member, id)',
        replace: '!set.holds.isFree(id)',
      },
    ],
    history: STRIPES,
    shape: TWO,
    caught: /shards of a stripe|is missing|cannot be read|not repaired/,
  },
  {
    bug: 'copies are reclaimed while only one volume has the stripe record',
    edits: [
      {
        part: 'VolumeSet',
        file: '../src/stripes/stripe-health.ts',
        find: "knowersOf(set, layout).every((member) => member.holdsDurably('stripe', id))",
        replace: 'id.length > 0',
      },
      {
        part: 'Striper',
        file: '../src/stripes/striper.ts',
        find: 'homes.slice(data_shards)',
        replace: 'homes.slice(data_shards, data_shards + 1)',
      },
    ],
    history: UNCHECKED,
    shape: TWO,
    caught: /is missing|cannot be read/,
  },
];

const urlOf = (path: string): string => import.meta.resolve(path);
const ENTRIES: Record<keyof Parts, string> = {
  VolumeSet: '../src/set/volume-set.ts',
  Striper: '../src/stripes/striper.ts',
};
const THROUGH = [
  'set/set-writer',
  'repair/reclaim-set',
  'stripes/stripe-survey',
  'membership/membership',
  'lifecycle/set-lifecycle',
].map((name) => urlOf(`../src/${name}.ts`));

async function broken(edits: readonly Edit[]): Promise<Parts> {
  const parts = { ...PARTS };
  for (const { part, file, find, replace } of edits) {
    const init = { entry: urlOf(ENTRIES[part]), through: THROUGH };
    Object.assign(parts, { [part]: (await mutant<Parts>(urlOf(file), find, replace, init))[part] });
  }
  return parts;
}

for (const { bug, edits, history, shape, caught } of PLANTED) {
  test(`detects a planted bug: ${bug}`, async () => {
    const parts = await broken(edits);
    await assert.rejects(checkEveryCrash(history, shape, parts), caught);
  });
}
