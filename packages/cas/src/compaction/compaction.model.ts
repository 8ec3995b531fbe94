/**
 * Models of compaction against concurrent readers and writers, on the real volume, log and store. The explorer decides when
 * each disk operation ends. Each model takes the code under test as a parameter, so that a mutant can replace it.
 */
import assert from 'node:assert/strict';
import { blake3 } from '@napi-rs/blake-hash';
import type { Build, World } from '@ron/explorer';
import { isRonError, sleep, TokenBucket } from '@ron/kernel';
import type { File, FileSystem } from '@ron/log';
import type { Address } from '@ron/proto';
import type { Compactor } from './compactor.ts';
import { chunkKey } from '../objects/leases.ts';
import type { LocalVolume } from '../volume/local-volume.ts';
import { memoryFiles } from '../index/memory-files.ts';
import { MemoryVolume } from '../volume/memory-volume.ts';
import type { ObjectStore } from '../objects/object-store.ts';
import type { StoredObject } from '../objects/stored-object.ts';
import type { Volume } from '../volume/volume.ts';

export interface Engine {
  LocalVolume: Pick<typeof LocalVolume, 'open'>;
  ObjectStore: typeof ObjectStore;
  Compactor: typeof Compactor;
}

const CHUNK = 1024;
const { signal } = new AbortController();

// Ready tasks run before a paused task continues. Client calls are I/O operations, so the explorer can delay them.

/** Files in memory. Once `isLive`, the explorer decides when each operation of `slow` ends. */
class ModelDisk implements FileSystem {
  isLive = false;
  readonly #files = new Map<string, { bytes: Uint8Array }>();
  readonly #world: World;
  readonly #slow: readonly string[];

  constructor(world: World, slow: readonly string[]) {
    this.#world = world;
    this.#slow = slow;
  }

  create = async (path: string): Promise<File> => {
    this.#files.set(path, { bytes: new Uint8Array(0) });
    return this.#file(path);
  };
  open = async (path: string): Promise<File> => this.#file(path);
  list = async (dir: string): Promise<string[]> =>
    [...this.#files.keys()].filter((path) => path.startsWith(`${dir}/`)).map((path) => path.slice(dir.length + 1));
  makeDir = async (): Promise<void> => undefined;
  rename = async (): Promise<void> => undefined;
  syncDir = async (): Promise<void> => undefined;
  remove = async (path: string): Promise<void> => {
    await this.#io('remove');
    this.#files.delete(path);
  };

  #file(path: string): File {
    const content = this.#files.get(path);
    if (content === undefined) throw Object.assign(new Error(`no ${path}`), { code: 'ENOENT' });
    let isOpen = true;
    const use = (): void => {
      if (!isOpen) throw Object.assign(new Error(`${path} was closed`), { code: 'EBADF' });
    };
    return {
      write: async (buffers, at) => {
        await this.#io('write');
        use();
        const bytes = Buffer.concat(buffers);
        const grown = new Uint8Array(Math.max(content.bytes.length, at + bytes.length));
        grown.set(content.bytes);
        grown.set(bytes, at);
        content.bytes = grown;
      },
      read: async (into, length, position) => {
        await this.#io('read');
        use();
        const bytes = content.bytes.subarray(position, position + length);
        into.set(bytes);
        return bytes.length;
      },
      sync: () => this.#io('sync'),
      truncate: async (bytes) => void (content.bytes = content.bytes.subarray(0, bytes)),
      size: async () => content.bytes.length,
      close: async () => void (isOpen = false),
    };
  }

  async #io(operation: string): Promise<void> {
    if (this.isLive && this.#slow.includes(operation)) await this.#world.io(operation);
  }
}

const bytesOf = (size: number, seed: number): Buffer => Buffer.alloc(size, `${seed} `);

async function put(store: ObjectStore, bytes: Uint8Array): Promise<Address> {
  const writer = store.writer();
  await writer.write(bytes, signal);
  return (await writer.finish({}, signal)).address;
}

async function find(store: ObjectStore, address: Address): Promise<StoredObject> {
  const object = await store.open(address, signal);
  // [storage I-1] Readers take no lock while segments are rewritten and removed.
  assert.ok(object !== undefined, 'a live object is missing');
  return object;
}

async function bytesIn(object: StoredObject): Promise<Buffer> {
  const parts: Uint8Array[] = [];
  for await (const part of object.read(0, object.size, signal)) parts.push(Buffer.concat(part));
  return Buffer.concat(parts);
}

const unlimited = (): TokenBucket => new TokenBucket('model', { rate_per_s: 1, burst: 2 ** 32 });

interface Opened {
  readonly store: ObjectStore;
  readonly volume: LocalVolume;
  readonly compact: () => Promise<void>;
}

/** Opens the engine on a model disk, lets `setUp` fill it, and goes live. */
async function open(
  engine: Engine,
  disk: ModelDisk,
  setUp: (store: ObjectStore) => Promise<void>,
  lease_ms?: number,
): Promise<Opened> {
  const { LocalVolume, ObjectStore, Compactor } = engine;
  const onDamage = (): never => assert.fail('a good record was taken for a damaged one');
  const indexFs = memoryFiles();
  const volume = await LocalVolume.open({ dir: '/v', fs: disk, indexFs, flush_after_ms: Infinity, onDamage, signal });
  // Enough to keep pages of manifests, too little for chunks: each read of a chunk goes to the disk.
  const store = new ObjectStore({ volume, chunk_bytes: CHUNK, batch_bytes: 1, cache_bytes: 1, lease_ms });
  await setUp(store);
  disk.isLive = true;
  const init = { live_ratio: 1.1, seal_bytes_min: 0, bucket: unlimited() };
  const compactor = new Compactor({ store, uploads: undefined, ...init });
  return { store, volume, compact: async () => void (await compactor.run(signal)) };
}

/**
 * A reader gets every byte of an object while the segment that holds it is rewritten and removed. It looks the object up
 * by its address, or has it open and reads its chunks.
 */
export function compactionAgainstRead(engine: Engine, reads: 'a small object' | 'chunks'): Build {
  return (world) => {
    const disk = new ModelDisk(world, ['read', 'write', 'remove']);
    const isSmall = reads === 'a small object';
    const body = bytesOf(isSmall ? 100 : CHUNK + 10, 1);
    let opened: Opened | undefined;
    world.task('reader', async () => {
      let address: Address | undefined;
      let object: StoredObject | undefined;
      opened = await open(engine, disk, async (store) => {
        address = await put(store, body);
        await store.remove(await put(store, bytesOf(50, 9)), signal);
        if (isSmall) return;
        object = await find(store, address);
        await bytesIn(object);
      });
      world.task('compactor', opened.compact);
      await world.io('request');
      object ??= await find(opened.store, address!);
      assert.deepEqual(await bytesIn(object), body, 'a byte is wrong');
    });
    return {
      final: () => {
        assert.deepEqual(opened?.volume.log.files.numbers(), [2], 'the old segment is still there');
      },
    };
  };
}

/** A lease holds a chunk that no object references while its segment is rewritten. */
export function leaseAgainstRewrite(engine: Engine): Build {
  return (world) => {
    const disk = new ModelDisk(world, ['read', 'write']);
    const chunk = bytesOf(CHUNK, 1);
    const id = blake3(chunk);
    const key = chunkKey(id);
    world.task('holder', async () => {
      const { store, volume, compact } = await open(engine, disk, async (fresh) => {
        // A removed object leaves its first chunk behind.
        await fresh.remove(await put(fresh, Buffer.concat([chunk, bytesOf(20, 3)])), signal);
      });
      world.task('compactor', compact);
      await world.io('request');
      store.leases.take(key);
      const wasThere = volume.isDurable('content', id);
      await world.io('more');
      if (wasThere) assert.ok(volume.isDurable('content', id), 'a leased chunk was reclaimed');
      store.leases.release(key);
    });
    return {};
  };
}

/** A volume that takes its time before each put and each listing. */
function takingTime(world: World, volume: Volume): Volume {
  return new Proxy(volume, {
    get: (target, name) => {
      const value: unknown = Reflect.get(target, name);
      if (typeof value !== 'function') return value;
      const call = (...args: unknown[]): unknown => Reflect.apply(value, target, args);
      if (name !== 'put' && name !== 'sync' && name !== 'inventory') return call;
      return async (...args: unknown[]) => {
        await world.io(name);
        return await call(...args);
      };
    },
  });
}

/** A writer relies on a chunk that no object references, while such chunks are swept. */
export function leaseAgainstSweep(engine: Engine): Build {
  return (world) => {
    const { ObjectStore, Compactor } = engine;
    const memory = new MemoryVolume({ bytes_max: 1e6 });
    const body = Buffer.concat([bytesOf(CHUNK, 1), bytesOf(10, 2)]);
    const store = new ObjectStore({
      volume: takingTime(world, memory),
      chunk_bytes: CHUNK,
      batch_bytes: 1,
      cache_bytes: 0,
    });
    world.task('writer', async () => {
      const quick = new ObjectStore({ volume: memory, chunk_bytes: CHUNK, batch_bytes: 1, cache_bytes: 0 });
      // A removed object leaves the first chunk behind.
      await quick.remove(await put(quick, Buffer.concat([bytesOf(CHUNK, 1), bytesOf(20, 3)])), signal);
      let address: Address | undefined;
      let ended = 0;
      const check = async (): Promise<void> => {
        if (++ended < 2) return;
        assert.deepEqual(await bytesIn(await find(quick, address!)), body, 'the object differs from the written bytes');
      };
      world.task('compactor', async () => {
        await new Compactor({ store, uploads: undefined, bucket: unlimited() }).run(signal);
        await check();
      });
      const writer = store.writer();
      await writer.write(body, signal);
      await world.io('end of the body');
      ({ address } = await writer.finish({}, signal));
      await check();
    });
    return { final: () => assert.equal(store.leases.size, 0, 'a lease is left') };
  };
}

/** An expired object is put again, or pinned, while it is being removed. */
export function expiryAgainst(engine: Engine, what: 'put' | 'pin'): Build {
  return (world) => {
    const disk = new ModelDisk(world, ['write']);
    const body = bytesOf(50, 1);
    world.task('client', async () => {
      let address: Address | undefined;
      const setUp = async (fresh: ObjectStore): Promise<void> => {
        address = await put(fresh, body);
        await sleep(10_000, signal);
      };
      const { store } = await open(engine, disk, setUp, 5_000);
      const id = Buffer.from(address!.slice(3), 'hex');
      const expired_s = (await store.volume.putTime_s('object', id))! + 5;
      let promised = false;
      let ended = 0;
      const check = (): void => {
        if (++ended === 2 && promised)
          assert.ok(store.has(address!), `the ${what} was acknowledged, the object is gone`);
      };
      world.task('sweep', async () => {
        await store.expire(id, expired_s, signal);
        check();
      });
      try {
        await world.io('request');
        await (what === 'put' ? put(store, body) : store.pin(address!, signal));
        promised = true;
      } catch (error) {
        assert.ok(what === 'pin' && isRonError(error, 'not_found'), String(error));
      }
      check();
    });
    return {};
  };
}
