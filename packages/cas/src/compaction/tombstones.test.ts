/** Tombstones are dropped only when nothing can bring their object back. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { blake3 } from '@napi-rs/blake-hash';
import { TokenBucket } from '@ron/kernel';
import { CrashFileSystem } from '@ron/log/testing';
import { formatAddress, type Address } from '@ron/proto';
import fc from 'fast-check';
import { Compactor } from './compactor.ts';
import { TABLES } from '../index/entry.ts';
import { LocalVolume } from '../volume/local-volume.ts';
import { ObjectStore } from '../objects/object-store.ts';
import { isTombstone, RecordType } from '../volume/record-types.ts';
import type { Reclaimed } from '../volume/volume.ts';

const { signal } = new AbortController();
const DIR = '/v';
const bodyOf = (name: number): Buffer => Buffer.alloc(40 + name, `body ${name} `);
const addressOf = (name: number): Address => formatAddress(blake3(bodyOf(name)));

interface Engine {
  volume: LocalVolume;
  store: ObjectStore;
}

async function openOn(fs: CrashFileSystem, segment_bytes: number): Promise<Engine> {
  const volume = await LocalVolume.open({ dir: DIR, fs, segment_bytes, flush_after_ms: Infinity, signal });
  return { volume, store: new ObjectStore({ volume, cache_bytes: 0 }) };
}

async function compact({ store }: Engine, seal_bytes_min = 1, live_ratio = 1.1): Promise<void> {
  const bucket = new TokenBucket('test', { rate_per_s: 2 ** 32, burst: 2 ** 32 });
  await new Compactor({ store, uploads: undefined, bucket, live_ratio, seal_bytes_min }).run(signal);
}

/** The entries of the index that are tombstones, and all. */
async function entriesIn({ volume }: Engine): Promise<{ tombstones: number; all: number }> {
  const counts = { tombstones: 0, all: 0 };
  await volume.inventory('object', undefined, 1);
  for (const table of TABLES) {
    for (let after: Uint8Array | undefined; ;) {
      const { entries, last } = await volume.index.page(table, after);
      counts.all += entries.length;
      counts.tombstones += entries.filter(([, place]) => isTombstone(place.type)).length;
      if (last === undefined) break;
      after = last;
    }
  }
  return counts;
}

test('rounds of put, remove and compact leave no entry of a removed object', { timeout: 120_000 }, async () => {
  const engine = await openOn(new CrashFileSystem(), 256 * 1024 * 1024);
  const kept = (await engine.store.put(Buffer.from('kept'), {}, signal)).address;
  const count = 3000;
  for (let round = 0; round < 3; round++) {
    const records = Array.from({ length: count }, (_, at) => {
      const payload = Buffer.from(`object ${round} ${at}`);
      return { type: RecordType.object, id: blake3(payload), payload };
    });
    await engine.volume.put(records, signal);
    const removals = records.map(({ id }) => ({ type: RecordType.remove, id, payload: new Uint8Array(0) }));
    const notes = records.slice(0, 500).map((record) => ({ ...record, type: RecordType.note }));
    const unnotes = notes.map((record) => ({ ...record, type: RecordType.unnote, payload: new Uint8Array(0) }));
    await engine.volume.put([...removals, ...notes, ...unnotes], signal);
    // By default a segment is sealed when it wastes space; here only because of tombstones.
    await compact(engine, 16 * 1024 * 1024);
    await compact(engine, 16 * 1024 * 1024);
    assert.deepEqual(await entriesIn(engine), { tombstones: 0, all: 2 });
  }
  await engine.volume.index.runs.merged();
  const stored = engine.volume.index.runs.runs.reduce((sum, run) => sum + run.count, 0);
  assert.ok(stored < count, `${stored} entries are still on disk`);
  assert.ok(engine.store.has(kept));
  await engine.volume.close();
});

test('while the set does not allow it, no tombstone is dropped', async () => {
  const engine = await openOn(new CrashFileSystem(), 4096);
  const { address } = await engine.store.put(bodyOf(1), {}, signal);
  await engine.store.remove(address, signal);
  let isAllowed = false;
  const init = { isNeeded: () => false, live_ratio: 1.1, seal_bytes_min: 0, pace: () => Promise.resolve(), signal };
  const reclaim = (): Promise<Reclaimed> => engine.volume.reclaim({ ...init, mayForgetRemovals: () => isAllowed });
  for (let round = 0; round < 3; round++) await reclaim();
  assert.ok(engine.volume.wasRemoved(blake3(bodyOf(1))));
  isAllowed = true;
  for (let round = 0; round < 2; round++) await reclaim();
  assert.ok(!engine.volume.wasRemoved(blake3(bodyOf(1))));
  assert.equal((await entriesIn(engine)).all, 0);
  await engine.volume.close();
});

test('content of a removed object that another object needs does not bring it back', async () => {
  const fs = new CrashFileSystem();
  let engine = await openOn(fs, 4096);
  const { address } = await engine.store.put(bodyOf(1), {}, signal);
  await engine.store.remove(address, signal);
  const init = { live_ratio: 1.1, seal_bytes_min: 0, pace: () => Promise.resolve(), signal };
  for (let round = 0; round < 3; round++) await engine.volume.reclaim({ ...init, isNeeded: () => true });
  assert.equal((await entriesIn(engine)).tombstones, 0);
  await engine.volume.close();
  engine = await openOn(new CrashFileSystem(withoutIndex(fs)), 4096);
  assert.ok(!engine.store.has(address) && engine.volume.has('content', blake3(bodyOf(1))));
});

const withoutIndex = (fs: CrashFileSystem): Map<string, Uint8Array> =>
  new Map([...fs.files()].filter(([path]) => !path.startsWith(`${DIR}/index`)));

type Step =
  | { readonly do: 'put' | 'remove' | 'pin' | 'unpin' | 'note' | 'unnote'; readonly name: number }
  | { readonly do: 'compact'; readonly live_ratio: number }
  | { readonly do: 'rebuild' | 'reopen' | 'flush' };

const NAMES = 5;
const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({
      do: fc.constantFrom(...(['put', 'remove', 'pin', 'unpin', 'note', 'unnote'] as const)),
      name: fc.nat(NAMES - 1),
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({ do: fc.constant('compact' as const), live_ratio: fc.constantFrom(0.2, 0.4, 0.7, 1.1) }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      do: fc.constantFrom('rebuild' as const, 'reopen' as const, 'flush' as const),
    }),
  },
);

test('after any history, with the index lost at any time, removed objects, pins and notes do not come back', async () => {
  const numRuns = process.env['RON_LONG'] === '1' ? 1000 : 60;
  await fc.assert(
    fc.asyncProperty(fc.array(step, { minLength: 20, maxLength: 60 }), async (steps) => {
      let fs = new CrashFileSystem();
      let engine = await openOn(fs, 512);
      const stored = new Set<number>();
      const pinned = new Set<number>();
      const noted = new Set<number>();
      for (const each of steps) {
        const { store } = engine;
        if (each.do === 'put') {
          await store.put(bodyOf(each.name), {}, signal);
          stored.add(each.name);
        } else if (each.do === 'remove' && stored.has(each.name)) {
          await store.remove(addressOf(each.name), signal);
          stored.delete(each.name);
        } else if (each.do === 'pin' && stored.has(each.name)) {
          await store.pin(addressOf(each.name), signal);
          pinned.add(each.name);
        } else if (each.do === 'unpin' && stored.has(each.name)) {
          await store.unpin(addressOf(each.name), signal);
          pinned.delete(each.name);
        } else if (each.do === 'note') {
          await engine.volume.put(
            [{ type: RecordType.note, id: blake3(bodyOf(each.name)), payload: bodyOf(9) }],
            signal,
          );
          noted.add(each.name);
        } else if (each.do === 'unnote') {
          const record = { type: RecordType.unnote, id: blake3(bodyOf(each.name)), payload: new Uint8Array(0) };
          await engine.volume.put([record], signal);
          noted.delete(each.name);
        } else if (each.do === 'compact') await compact(engine, 1, each.live_ratio);
        else if (each.do === 'flush') await engine.volume.inventory('object', undefined, 1);
        else if (each.do === 'rebuild' || each.do === 'reopen') {
          await engine.volume.close();
          fs = new CrashFileSystem(each.do === 'rebuild' ? withoutIndex(fs) : fs.files());
          engine = await openOn(fs, 512);
        }
        for (let name = 0; name < NAMES; name++) {
          assert.equal(engine.store.has(addressOf(name)), stored.has(name), `object ${name}`);
          assert.equal(engine.store.isPinned(addressOf(name)), pinned.has(name), `pin ${name}`);
          assert.equal(engine.volume.has('note', blake3(bodyOf(name))), noted.has(name), `note ${name}`);
        }
      }
      await engine.volume.close();
    }),
    { numRuns },
  );
});
