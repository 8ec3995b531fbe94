/**
 * Models of the cache, on the real cache, evicting store and object store. The explorer decides when the volume responds.
 *
 * A reader gets all bytes of an asset or a miss while the asset is evicted or purged and its space is reclaimed. An asset that
 * shares its bytes with an evicted one stays. Once a purge is acknowledged, no fill that began before it is found, in memory or
 * on disk, and neither is an asset that was being read; a later fill is kept.
 */
import assert from 'node:assert/strict';
import { blake3 } from '@napi-rs/blake-hash';
import { MemoryVolume, ObjectStore, type EvictingStore, type NewRecord, type Kind, type StoredRecord } from '@ron/cas';
import type { Build, World } from '@ron/explorer';
import type { FastEntry } from '@ron/ingress';
import { NEVER } from '@ron/kernel';
import { formatAddress } from '@ron/proto';
import { parseNote } from './asset-note.ts';
import type { AssetMeta } from './cached-asset.ts';
import { RamAssets } from './ram-assets.ts';
import type { DiskTier, TieredCache } from './tiered-cache.ts';

/** The classes under test; the mutation tests replace one of them. */
export interface Parts {
  readonly TieredCache: typeof TieredCache;
  readonly EvictingStore: typeof EvictingStore;
}

const CHUNK = 1024;
const SMALL = Buffer.from('a small asset');
const LARGE = Buffer.concat([Buffer.alloc(CHUNK, 'a'), Buffer.alloc(10, 'b')]);
const KEY = 'live/origin.example/a';
const OTHER = 'live/origin.example/b';

/** Calls that take time: writes, or reads of a kind. */
type Slow = 'write' | Kind;

/** A volume in memory, some of whose calls take time once the model is set up. */
class SlowVolume extends MemoryVolume {
  readonly #world: World;
  readonly #slow: readonly Slow[];
  /** Writes take effect in the order of their calls. */
  #written: Promise<void> = Promise.resolve();
  isLive = false;

  constructor(world: World, slow: readonly Slow[]) {
    super({ id: 'model', bytes_max: 1e6 });
    this.#world = world;
    this.#slow = slow;
  }

  override async put(records: readonly NewRecord[], signal: AbortSignal): Promise<void> {
    const before = this.#written;
    const written = this.#take('write').then(async () => {
      await before;
      await super.put(records, signal);
    });
    this.#written = written;
    await written;
  }

  override async get(kind: Kind, id: Uint8Array, signal: AbortSignal): Promise<StoredRecord | undefined> {
    await this.#take(kind);
    return await super.get(kind, id, signal);
  }

  async #take(call: Slow): Promise<void> {
    if (this.isLive && this.#slow.includes(call)) await this.#world.io(call);
  }
}

function metaOf(key: string, bytes: Uint8Array): AssetMeta {
  const address = formatAddress(blake3(Buffer.from(bytes)));
  const absent = { etag: undefined, freshness: undefined, provenance: undefined, log_index: undefined };
  return { key, address, size: bytes.length, media_type: 'image/png', ...absent };
}

interface OpenInit {
  readonly names_bytes_max: number;
  readonly slow: readonly Slow[];
  readonly whole_bytes_max?: number;
}

/** A loaded cache with nothing in it. */
async function open(world: World, parts: Parts, { names_bytes_max, slow, whole_bytes_max = 1e6 }: OpenInit) {
  const volume = new SlowVolume(world, slow);
  const objects = new ObjectStore({ volume, chunk_bytes: CHUNK, batch_bytes: 1, cache_bytes: 0 });
  const store = new parts.EvictingStore({
    store: objects,
    compactor: { run: () => Promise.reject(new Error('there is room')) },
    bytes_max: 1e6,
    names_bytes_max,
    segment_bytes: 0,
    parse: (note) => {
      const meta = parseNote(note);
      return meta && { name: meta.key, address: meta.address, size: meta.size };
    },
    onFailure: (error) => assert.fail(String(error)),
  });
  const disk: DiskTier = {
    store,
    problem: undefined,
    disk_bytes: 0,
    readResult: (error) => assert.equal(error, undefined),
    run: (stopping) => store.run(stopping),
    close: () => Promise.resolve(),
  };
  const cache = new parts.TieredCache({
    // Too small for fingerprints, whose seed would multiply the schedules.
    ram: new RamAssets(6000),
    disk,
    bodies_bytes_max: 1e6,
    whole_bytes_max,
    prepare: (meta, bytes) => {
      const entry = { source: { size: bytes.length, ram: [bytes] } } as unknown as FastEntry;
      return { asset: { entry, meta, owner: undefined }, bytes: 1, lifetime: {} };
    },
  });
  await store.pass(NEVER);
  /** Reclaims the contents that belong to no object, as compaction does. */
  const compact = async (): Promise<void> => {
    const isNeeded = (id: Uint8Array): boolean =>
      objects.has(formatAddress(blake3(LARGE))) || objects.has(formatAddress(id));
    await volume.reclaim({ isNeeded, live_ratio: 1, seal_bytes_min: 0, pace: () => Promise.resolve(), signal: NEVER });
  };
  return { volume, store, cache, compact };
}

type Opened = Awaited<ReturnType<typeof open>>;

async function fill(
  { cache }: Opened,
  key: string,
  bytes: Uint8Array,
  generation = cache.generation,
): Promise<boolean> {
  const writer = cache.writer(1e5);
  await writer.write(bytes, NEVER);
  const body = await writer.finish('image/png', NEVER);
  return (await cache.keep(metaOf(key, bytes), body, generation, NEVER)) === 'kept';
}

/** The bytes of an asset; undefined for a miss. */
async function read({ cache }: Opened, key: string): Promise<Buffer | undefined> {
  const found = await cache.find(key, NEVER);
  if (found === undefined) return undefined;
  if (found.source.ram !== undefined) return Buffer.concat(found.source.ram);
  const parts: Uint8Array[] = [];
  for await (const batch of found.source.read(0, found.source.size, NEVER)) parts.push(Buffer.concat(batch));
  return Buffer.concat(parts);
}

/** Neither memory nor disk finds the key, and no note is left for the next start. */
async function assertAbsent(opened: Opened, key: string): Promise<void> {
  const { cache, volume, store } = opened;
  volume.isLive = false;
  assert.equal(cache.ram.find(key), undefined, 'a purged asset is in memory');
  assert.equal(await store.find(key, NEVER), undefined, 'a purged asset is on disk');
  assert.equal((await volume.inventory('note', undefined, 9)).length, 0, 'a purged asset comes back after a restart');
}

/** `small`: one record. The others have several: `whole` is read before the answer begins, `streamed` during the answer. */
export type Size = 'small' | 'whole' | 'streamed';

/** A reader of an asset while it is evicted, or purged, and its space is reclaimed. */
export function removalAgainstRead(parts: Parts, how: 'evict' | 'purge', size: Size): Build {
  return (world) => {
    const body = size === 'small' ? SMALL : LARGE;
    world.task('reader', async () => {
      // A small asset is read in one step after its note; of a large one each part takes time.
      const slow: readonly Slow[] = size === 'small' ? ['write', 'note', 'object'] : ['write', 'content'];
      const whole_bytes_max = size === 'streamed' ? 0 : 1e6;
      const opened = await open(world, parts, { names_bytes_max: how === 'evict' ? 0 : 1e6, slow, whole_bytes_max });
      const { cache, volume, store, compact } = opened;
      await fill(opened, KEY, body);
      cache.ram.delete(KEY);
      volume.isLive = true;
      let ended = 0;
      const check = async (): Promise<void> => {
        if (++ended === 2 && how === 'purge') await assertAbsent(opened, KEY);
      };
      const purge = async (): Promise<void> => {
        const purged = cache.purge({ key: KEY }, NEVER);
        await store.pass(NEVER);
        await purged;
      };
      world.task('removal', async () => {
        await (how === 'evict' ? store.pass(NEVER) : purge());
        await compact();
        await check();
      });
      const bytes = await read(opened, KEY);
      if (bytes !== undefined) assert.deepEqual(bytes, body, 'a byte is wrong');
      await check();
    });
    return {};
  };
}

/** An asset is evicted while another one with the same bytes is kept. */
export function evictionAgainstFill(parts: Parts): Build {
  return (world) => {
    world.task('fill', async () => {
      const opened = await open(world, parts, { names_bytes_max: 1e6, slow: ['write'] });
      const { cache, volume, store, compact } = opened;
      await fill(opened, KEY, SMALL);
      volume.isLive = true;
      let ended = 0;
      const check = async (): Promise<void> => {
        if (++ended < 2) return;
        volume.isLive = false;
        cache.ram.deleteWhere(() => true);
        const bytes = await read(opened, OTHER);
        if (isKept) assert.deepEqual(bytes, SMALL, 'the bytes of a kept asset were removed with another one');
      };
      let isKept = false;
      world.task('removal', async () => {
        const removed = store.removeWhere((name) => name === KEY, NEVER);
        await store.pass(NEVER);
        await removed;
        await compact();
        await check();
      });
      await world.io('log entry');
      isKept = await fill(opened, OTHER, SMALL);
      await check();
    });
    return {};
  };
}

/** A purge while an asset is filled: before its body, its log entry or its note is complete. */
export function purgeAgainstFill(parts: Parts): Build {
  return (world) => {
    world.task('fill', async () => {
      const opened = await open(world, parts, { names_bytes_max: 1e6, slow: ['write'] });
      const { cache, volume, store } = opened;
      volume.isLive = true;
      const { generation } = cache;
      let ended = 0;
      const check = async (): Promise<void> => {
        if (++ended < 2) return;
        await store.pass(NEVER);
        await assertAbsent(opened, KEY);
        assert.ok(await fill(opened, KEY, SMALL), 'a fill after the purge was not kept');
        assert.deepEqual(await read(opened, KEY), SMALL);
      };
      world.task('purge', async () => {
        const purged = cache.purge({ key: KEY }, NEVER);
        const evictor = async (): Promise<void> => {
          // The evictor wakes up for each removal.
          for (let round = 0; round < 2; round++) await store.pass(NEVER);
        };
        await Promise.all([purged, keepEnded.then(evictor)]);
        await check();
      });
      await world.io('log entry');
      const kept = fill(opened, KEY, SMALL, generation);
      resolveKeep(await kept);
      await check();
    });
    let resolveKeep!: (isKept: boolean) => void;
    const keepEnded = new Promise<boolean>((resolve) => (resolveKeep = resolve));
    return {};
  };
}
