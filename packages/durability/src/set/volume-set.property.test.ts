/** After any sequence of single volume failures, acknowledged objects exist, removed ones do not, and every byte is right. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { blake3 } from '@napi-rs/blake-hash';
import { RecordType, type NewRecord } from '@ron/cas';
import { isRonError } from '@ron/kernel';
import fc from 'fast-check';
import { Pacing } from '../repair/pacing.ts';
import { Planner } from '../repair/planner.ts';
import { RepairQueue } from '../repair/repair-queue.ts';
import { RepairWorker } from '../repair/repair-worker.ts';
import { Striper } from '../stripes/striper.ts';
import { Directories } from '../testing/directories.ts';
import type { VolumeSet } from './volume-set.ts';

const { signal } = new AbortController();
const NAMES = ['a', 'b', 'c', 'd'];
/** Few, so that the same things happen to the same ones. */
const NUMBERS = 3;
const SHAPE = { replication_factor: 2, lone_copies: 2, write_min: 2 };
const pace = (): Promise<void> => Promise.resolve();

function object(number: number): NewRecord {
  const payload = Buffer.from(`object ${number}`);
  return { type: RecordType.object, id: blake3(payload), payload, meta: Buffer.from('a/b') };
}

function chunk(number: number): NewRecord {
  const payload = Buffer.alloc(100 + number, `chunk ${number} `);
  return { type: RecordType.chunk, id: blake3(payload), payload };
}

const mark = (type: number, of: NewRecord): NewRecord => ({ type, id: of.id, payload: new Uint8Array(0) });

class World {
  readonly directories: Directories;
  set!: VolumeSet;
  /** The expected content of the set. */
  readonly objects = new Set<number>();
  readonly chunks = new Set<number>();
  away: string | undefined;

  constructor(directories: Directories) {
    this.directories = directories;
  }

  async put(number: number): Promise<void> {
    await this.set.put([object(number), chunk(number)], signal);
    this.objects.add(number);
    this.chunks.add(number);
  }

  async remove(number: number): Promise<void> {
    if (!this.objects.has(number)) return;
    await this.set.put([mark(RecordType.remove, object(number))], signal);
    this.objects.delete(number);
  }

  /** A volume leaves while everything has its copies, and comes back stale. */
  async swap(name: string): Promise<void> {
    if (this.away === undefined) {
      await this.repair();
      await this.set.member(name).volume.close();
      this.set.lifecycle.lose(name, 'away');
      this.away = name;
      return;
    }
    this.set.lifecycle.add({ volume: await this.directories.volume(this.away) });
    this.away = undefined;
  }

  async stripe(numbers: readonly number[]): Promise<void> {
    const ids = [...new Set(numbers)].filter((number) => this.chunks.has(number)).map((number) => chunk(number).id);
    const free = ids.filter((id) => !this.set.stripes.protects(id));
    const striper = new Striper({ set: this.set, data_shards: 2, parity_shards: 1, pace });
    if (free.length >= 2) await striper.make(free.slice(0, 2), signal);
  }

  async compact(): Promise<void> {
    const needed = [...this.chunks].map((number) => Buffer.from(chunk(number).id).toString('hex'));
    const isNeeded = (id: Uint8Array): boolean => needed.includes(Buffer.from(id).toString('hex'));
    const reclaimed = this.set.reclaim({ isNeeded, live_ratio: 1.1, seal_bytes_min: 0, pace, signal });
    if (this.set.incomplete === undefined) await reclaimed;
    else await assert.rejects(reclaimed, (error) => isRonError(error, 'not_ready'));
  }

  async repair(): Promise<void> {
    const queue = new RepairQueue();
    const planner = new Planner({ set: this.set, queue });
    const worker = new RepairWorker({ set: this.set, queue, pacing: new Pacing({ rate_bytes_per_s: 1e9 }) });
    for (let round = 0; (await planner.plan(signal)).deficit > 0; round++) {
      assert.ok(round < 5, `${planner.report.deficit} cannot be repaired`);
      while (queue.depth > 0) await worker.work((await queue.take(signal))!, signal);
    }
  }

  async restart(): Promise<void> {
    await this.set.close();
    await this.open();
  }

  async open(): Promise<void> {
    const here = NAMES.filter((name) => name !== this.away);
    this.set = await this.directories.open(here, SHAPE);
  }

  async check(): Promise<void> {
    for (let number = 0; number < NUMBERS; number++) {
      assert.equal(this.set.has('object', object(number).id), this.objects.has(number), `object ${number}`);
      if (!this.chunks.has(number)) continue;
      const record = await this.set.get('content', chunk(number).id, signal);
      assert.ok(record !== undefined && Buffer.compare(record.payload, chunk(number).payload) === 0, `chunk ${number}`);
    }
  }
}

type Action = (world: World) => Promise<void>;

const numbers = fc.nat(NUMBERS - 1);
const actions: fc.Arbitrary<{ text: string; run: Action }> = fc.oneof(
  numbers.map((number) => ({ text: `put ${number}`, run: (world: World) => world.put(number) })),
  numbers.map((number) => ({ text: `remove ${number}`, run: (world: World) => world.remove(number) })),
  fc.constantFrom(...NAMES).map((name) => ({ text: `swap ${name}`, run: (world: World) => world.swap(name) })),
  fc
    .array(numbers, { minLength: 2 })
    .map((some) => ({ text: `stripe ${some.join(' ')}`, run: (world: World) => world.stripe(some) })),
  fc.constant({ text: 'compact', run: (world: World) => world.compact() }),
  fc.constant({ text: 'repair', run: (world: World) => world.repair() }),
  fc.constant({ text: 'restart', run: (world: World) => world.restart() }),
);

test('a set keeps its promises through any history', { timeout: 120_000 }, async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(actions, { maxLength: 25 }), async (history) => {
      using directories = new Directories();
      const world = new World(directories);
      await world.open();
      try {
        for (let number = 0; number < NUMBERS; number++) await world.put(number);
        for (const { run } of history) {
          await run(world);
          await world.check();
        }
        await world.repair();
        await world.check();
      } finally {
        await world.set.close();
      }
    }),
    { numRuns: Number(process.env['FUZZ_RUNS'] ?? 10), reporter: reporterOf },
  );
});

function reporterOf(details: fc.RunDetails<[{ text: string; run: Action }[]]>): void {
  if (!details.failed) return;
  const history = details.counterexample?.[0].map(({ text }) => text).join(', ');
  throw new Error(
    `after ${history}: ${String(details.errorInstance)} (seed ${details.seed}, path ${details.counterexamplePath})`,
    {
      cause: details.errorInstance,
    },
  );
}
