/**
 * The engine on a disk that fails once, at every operation of a history in turn: no acknowledged change is lost, even if
 * the power fails afterwards; the failure has a code of the error table; and a retry succeeds.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { blake3 } from '@napi-rs/blake-hash';
import { installSched, isRonError, realSched, TokenBucket } from '@ron/kernel';
import { CrashFileSystem } from '@ron/log/testing';
import { formatAddress, type Address } from '@ron/proto';
import { Compactor } from '../src/compaction/compactor.ts';
import { LocalVolume } from '../src/volume/local-volume.ts';
import { ObjectStore } from '../src/objects/object-store.ts';
import { Uploads } from '../src/uploads/uploads.ts';

const { signal } = new AbortController();
const DIR = '/v';
const CHUNK = 1024;
const IMAGES_MAX = 6;

const bytesOf = (size: number, seed: number): Buffer => Buffer.alloc(size, `${seed}/${size} `);

async function* bodyOf(bytes: Buffer): AsyncGenerator<Uint8Array, void, void> {
  for (let at = 0; at < bytes.length; at += 700) yield bytes.subarray(at, at + 700);
}

/** Fails the operation with this number, once. */
class FailingDisk {
  readonly fs: CrashFileSystem;
  failed: string | undefined;
  #operations = 0;

  constructor(fails: { at: number; code: string }) {
    this.fs = new CrashFileSystem(new Map(), {
      before: (operation, path) => {
        if (operation === 'close' || ++this.#operations !== fails.at) return;
        this.failed = `${operation} ${path}`;
        throw Object.assign(new Error(`${fails.code}: ${operation}`), { code: fails.code });
      },
    });
  }
}

interface Engine {
  readonly volume: LocalVolume;
  readonly store: ObjectStore;
  readonly uploads: Uploads;
}

async function open(fs: CrashFileSystem): Promise<Engine> {
  const init = { dir: DIR, fs, segment_bytes: 8192, flush_after_ms: Infinity, signal };
  const volume = await LocalVolume.open(init);
  const store = new ObjectStore({ volume, chunk_bytes: CHUNK, batch_bytes: 1, cache_bytes: 0 });
  return { volume, store, uploads: await Uploads.open({ store, dir: DIR, fs }) };
}

async function put(store: ObjectStore, bytes: Buffer): Promise<Address> {
  const writer = store.writer();
  try {
    await writer.write(bytes, signal);
    return (await writer.finish({}, signal)).address;
  } finally {
    writer.abort();
  }
}

async function read(store: ObjectStore, address: Address): Promise<Buffer> {
  const object = await store.open(address, signal);
  assert.ok(object, `${address} is lost`);
  const parts: Uint8Array[] = [];
  for await (const part of object.read(0, object.size, signal)) parts.push(Buffer.concat(part));
  return Buffer.concat(parts);
}

/** A client of an engine whose disk may fail: retries failed operations and records the expected state. */
class Client {
  readonly stored = new Map<Address, Buffer>();
  readonly removed = new Set<Address>();
  readonly failures: unknown[] = [];
  #engine: Engine | undefined;

  async run(disk: FailingDisk): Promise<Engine> {
    this.#engine = await this.#retry(() => open(disk.fs));
    // Errors at open may be those of the operating system: only the operator sees them.
    this.failures.length = 0;
    // Large objects are being written while the syncs of small ones fail.
    await Promise.all([this.#put(100, 1), this.#put(3 * CHUNK + 1, 2), this.#put(150, 6), this.#put(120, 7)]);
    await this.#put(3 * CHUNK + 1, 3);
    await this.#remove(3 * CHUNK + 1, 2);
    await this.#upload(4000, 4);
    await this.#retry(() => this.#compact());
    await this.#put(200, 5);
    return this.#engine;
  }

  async #put(size: number, seed: number): Promise<void> {
    const bytes = bytesOf(size, seed);
    const address = await this.#retry(() => put(this.#engine!.store, bytes));
    assert.equal(address, formatAddress(blake3(bytes)));
    this.stored.set(address, bytes);
    assert.deepEqual(await this.#retry(() => read(this.#engine!.store, address)), bytes);
  }

  async #remove(size: number, seed: number): Promise<void> {
    const address = formatAddress(blake3(bytesOf(size, seed)));
    await this.#retry(async () => {
      if (this.#engine!.store.has(address)) await this.#engine!.store.remove(address, signal);
    });
    this.stored.delete(address);
    this.removed.add(address);
  }

  async #upload(size: number, seed: number): Promise<void> {
    const { uploads } = this.#engine!;
    const bytes = bytesOf(size, seed);
    const { id } = await this.#retry(() => uploads.create({ size }));
    let acknowledged = 0;
    for (const end of [1500, size]) {
      await this.#retry(async () => {
        const { offset } = await uploads.settle(id, signal);
        assert.ok(offset >= acknowledged, 'an acknowledged offset is lost');
        if (offset === size) return;
        ({ offset: acknowledged } = await uploads.append({
          id,
          offset,
          body: bodyOf(bytes.subarray(offset, end)),
          signal,
        }));
      });
    }
    const { address } = await this.#retry(() => uploads.settle(id, signal));
    this.stored.set(address!, bytes);
  }

  async #compact(): Promise<void> {
    const { store, uploads } = this.#engine!;
    const bucket = new TokenBucket('test', { rate_per_s: 2 ** 32, burst: 2 ** 32 });
    await new Compactor({ store, uploads, bucket, live_ratio: 1, seal_bytes_min: 1 }).run(signal);
  }

  /** The disk fails once: the second attempt succeeds. */
  async #retry<T>(work: () => Promise<T>): Promise<T> {
    try {
      return await work();
    } catch (error) {
      this.failures.push(error);
      return await work();
    }
  }
}

async function check(client: Client, engine: Engine): Promise<void> {
  for (const [address, bytes] of client.stored) assert.deepEqual(await read(engine.store, address), bytes);
  for (const address of client.removed) assert.ok(!engine.store.has(address), 'a removed object is back');
}

/** A clock that skips the time for which the log refuses writes after a failure. */
function withQuickClock<T>(work: () => Promise<T>): Promise<T> {
  let now_ms = 0;
  const previous = installSched({ ...realSched, now_ms: () => (now_ms += 10_000) });
  return work().finally(() => installSched(previous));
}

for (const code of ['EIO', 'ENOSPC']) {
  test(`nothing is lost when any one operation fails with ${code}, and the work succeeds the second time`, async () => {
    const failed: string[] = [];
    for (let at = 1; ; at++) {
      const disk = new FailingDisk({ at, code });
      const isOver = await withQuickClock(async () => {
        const client = new Client();
        const engine = await client.run(disk);
        if (disk.failed === undefined) return true;
        failed.push(disk.failed);
        const where = `operation ${at}: ${disk.failed}`;
        await check(client, engine).catch((error: unknown) => assert.fail(`${where}: ${String(error)}`));
        for (const error of client.failures) {
          const isExpected = isRonError(error, 'storage_full') || isRonError(error, 'not_ready');
          assert.ok(isExpected, `${where}: ${String(error)}`);
        }
        // The power fails: unsynced bytes, and those that a failed sync did not write, are lost.
        for (const image of disk.fs.imagesAt(disk.fs.operations, IMAGES_MAX, Math.random)) {
          const again = await open(new CrashFileSystem(image));
          await check(client, again).catch((error: unknown) => assert.fail(`${where}, reopened: ${String(error)}`));
        }
        return false;
      });
      if (isOver) break;
    }
    for (const operation of ['write', 'sync', 'create', 'syncDir', 'rename', 'remove', 'read']) {
      assert.ok(
        failed.some((each) => each.startsWith(operation)),
        `no ${operation} failed`,
      );
    }
  });
}

test('chunks that the failed sync of another writer lost are detected before the object is acknowledged', async () => {
  let isBroken = false;
  const before = (operation: string): void => {
    if (isBroken && operation === 'sync') throw Object.assign(new Error('EIO'), { code: 'EIO' });
  };
  const fs = new CrashFileSystem(new Map(), { before });
  await withQuickClock(async () => {
    const { store } = await open(fs);
    const bytes = bytesOf(3 * CHUNK, 1);
    const writer = store.writer();
    await writer.write(bytes, signal);
    // Written, and not synced.
    while (store.volume.stats().used_bytes < 2 * CHUNK)
      await new Promise<void>((resolve) => void setImmediate(resolve));
    assert.ok(!store.volume.has('content', blake3(bytes.subarray(0, CHUNK))));
    isBroken = true;
    await assert.rejects(put(store, bytesOf(10, 2)), (error) => isRonError(error, 'not_ready'));
    assert.ok(!store.has(formatAddress(blake3(bytesOf(10, 2)))), 'a refused object is stored');
    isBroken = false;
    await assert.rejects(writer.finish({}, signal), (error) => isRonError(error, 'not_ready'));
    assert.ok(!store.has(formatAddress(blake3(bytes))));
    const address = await put(store, bytes);
    for (const image of fs.imagesAt(fs.operations, IMAGES_MAX, Math.random)) {
      const again = await open(new CrashFileSystem(image));
      assert.deepEqual(await read(again.store, address), bytes);
    }
  });
});
