/** A real disk that is full or read-only: a small tmpfs. Skipped without the permission to mount one. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmdirSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, afterEach, before, beforeEach, suite, test } from 'node:test';
import { blake3 } from '@napi-rs/blake-hash';
import { isRonError, TokenBucket } from '@ron/kernel';
import { formatAddress, type Address } from '@ron/proto';
import { Compactor } from '../src/compaction/compactor.ts';
import { LocalVolume } from '../src/volume/local-volume.ts';
import { ObjectStore } from '../src/objects/object-store.ts';
import { Uploads } from '../src/uploads/uploads.ts';
import type { VolumeState } from '../src/volume/volume.ts';

const { signal } = new AbortController();
const CHUNK = 64 * 1024;
const run = (command: string, ...args: string[]): boolean => spawnSync(command, args, { timeout: 10_000 }).status === 0;

const probe = mkdtempSync(join(tmpdir(), 'ron-mount-'));
const mayMount = run('mount', '-t', 'tmpfs', '-o', 'size=1m', 'tmpfs', probe);
if (mayMount) run('umount', probe);
rmdirSync(probe);

const content = (size: number, seed: number): Buffer => {
  const bytes = Buffer.allocUnsafe(size);
  for (let at = 0, x = seed; at < size; at++) bytes[at] = (x = Math.imul(x, 1_103_515_245) + 12_345) >>> 16;
  return bytes;
};

async function* bodyOf(bytes: Buffer): AsyncGenerator<Uint8Array, void, void> {
  for (let at = 0; at < bytes.length; at += 30_000) yield bytes.subarray(at, at + 30_000);
}

suite('on a small tmpfs', { skip: mayMount ? false : 'mounting a tmpfs is not permitted' }, () => {
  let dir: string;
  let volume: LocalVolume | undefined;
  let store: ObjectStore;
  let uploads: Uploads;
  let states: VolumeState[];

  before(() => void (dir = mkdtempSync(join(tmpdir(), 'ron-full-'))));
  after(() => rmdirSync(dir));
  beforeEach(async () => {
    assert.ok(run('mount', '-t', 'tmpfs', '-o', 'size=8m', 'tmpfs', dir));
    states = [];
    await open();
  });
  afterEach(async () => {
    await close();
    assert.ok(run('umount', dir));
  });

  async function open(): Promise<void> {
    volume = await LocalVolume.open({ dir, signal, segment_bytes: 1 << 20, onState: (state) => states.push(state) });
    store = new ObjectStore({ volume, cache_bytes: 0 });
    uploads = await Uploads.open({ store, dir });
  }

  async function close(): Promise<void> {
    if (volume === undefined) return;
    await uploads.close();
    await volume.close();
    volume = undefined;
  }

  async function put(bytes: Buffer): Promise<Address> {
    const writer = store.writer();
    try {
      await writer.write(bytes, signal);
      return (await writer.finish({}, signal)).address;
    } finally {
      writer.abort();
    }
  }

  async function get(address: Address): Promise<Buffer> {
    const object = await store.open(address, signal);
    assert.ok(object, `${address} is here`);
    const parts: Uint8Array[] = [];
    for await (const part of object.read(0, object.size, signal)) parts.push(Buffer.concat(part));
    return Buffer.concat(parts);
  }

  const compact = async (): Promise<number> => {
    const bucket = new TokenBucket('test', { rate_per_s: 2 ** 32, burst: 2 ** 32 });
    const init = { store, uploads, bucket, live_ratio: 1, seal_bytes_min: 1 };
    return (await new Compactor(init).run(signal)).freed_bytes;
  };

  /** Stores objects until the disk is full; returns the acknowledged ones. */
  async function fill(size: number): Promise<Map<Address, Buffer>> {
    const stored = new Map<Address, Buffer>();
    for (let seed = 1; seed < 500; seed++) {
      const bytes = content(size, seed * 31 + size);
      try {
        stored.set(await put(bytes), bytes);
      } catch (error) {
        assert.ok(isRonError(error, 'storage_full'), String(error));
        return stored;
      }
    }
    return assert.fail('the disk never became full');
  }

  async function assertAll(stored: Map<Address, Buffer>): Promise<void> {
    for (const [address, bytes] of stored) assert.deepEqual(await get(address), bytes);
  }

  /** Retries while the log refuses because of the last failure. */
  async function whenReady<T>(work: () => Promise<T>): Promise<T> {
    for (let tries = 0; ; tries++) {
      try {
        return await work();
      } catch (error) {
        if (tries === 400 || !isRonError(error, 'storage_full')) throw error;
        await new Promise((resolve) => setTimeout(resolve, 20));
      }
    }
  }

  test('a put answers storage_full, reads succeed, and compaction makes room', async () => {
    const stored = await fill(3 * CHUNK + 5);
    assert.ok(stored.size > 20);
    assert.equal(volume!.state.condition, 'full');
    await assertAll(stored);
    const removed = [...stored.keys()].slice(0, stored.size / 2);
    for (const address of removed) {
      // A removal needs space too, so some has to be freed first.
      await whenReady(() => store.remove(address, signal)).catch(() => undefined);
    }
    for (const address of removed) stored.delete(address);
    await close();
    await open();
    await assertAll(stored);
  });

  test('a full disk reclaims objects that were removed before', async () => {
    const first = await put(content(20 * CHUNK, 1));
    const second = await put(content(20 * CHUNK, 2));
    await store.remove(first, signal);
    const stored = await fill(CHUNK + 100);
    assert.ok((await whenReady(compact)) > 15 * CHUNK);
    stored.set(second, content(20 * CHUNK, 2));
    await assertAll(stored);
    const bytes = content(5 * CHUNK, 77);
    stored.set(await whenReady(() => put(bytes)), bytes);
    assert.equal(volume!.state.condition, 'ok');
    await close();
    await open();
    await assertAll(stored);
  });

  test('an upload answers storage_full, keeps acknowledged bytes, and resumes when there is room', async () => {
    const garbage = await put(content(30 * CHUNK, 1));
    const bytes = content(25 * CHUNK, 5);
    const { id } = await uploads.create({ size: bytes.length });
    const half = bodyOf(bytes.subarray(0, 8 * CHUNK));
    const { offset } = await uploads.append({ id, offset: 0, body: half, signal });
    await store.remove(garbage, signal);
    const stored = await fill(2 * CHUNK);
    const body = bodyOf(bytes.subarray(offset));
    await assert.rejects(uploads.append({ id, offset, body, signal }), (error) => isRonError(error, 'storage_full'));
    assert.ok(uploads.status(id)!.offset >= offset);
    await whenReady(compact);
    await close();
    await open();
    const at = uploads.status(id)!.offset;
    assert.ok(at >= offset, 'an acknowledged offset is lost');
    const { address } = await whenReady(() => {
      const from = uploads.status(id)!.offset;
      return uploads.append({ id, offset: from, body: bodyOf(bytes.subarray(from)), signal });
    });
    assert.equal(address, formatAddress(blake3(bytes)));
    assert.deepEqual(await get(address), bytes);
    await assertAll(stored);
  });

  test('a compaction that runs out of room loses nothing, and succeeds when there is some', async () => {
    const removed: Address[] = [];
    const kept = new Map<Address, Buffer>();
    // Half of every segment is needed and must be copied before the segment can be removed.
    for (let seed = 1; seed <= 16; seed++) {
      const bytes = content(2 * CHUNK, seed);
      const address = await put(bytes);
      if (seed % 2 === 0) removed.push(address);
      else kept.set(address, bytes);
    }
    for (const address of removed) await store.remove(address, signal);
    for (const [address, bytes] of await fill(CHUNK / 2)) kept.set(address, bytes);
    const first = await compact().catch((error: unknown) => {
      assert.ok(isRonError(error, 'storage_full'), String(error));
      return 0;
    });
    await assertAll(kept);
    assert.ok(run('mount', '-o', 'remount,size=16m', dir));
    assert.ok(first + (await whenReady(compact)) > 8 * CHUNK);
    await assertAll(kept);
    await close();
    await open();
    await assertAll(kept);
  });

  test('a read-only directory can be opened and read, and states why it refuses writes', async () => {
    const bytes = content(3 * CHUNK, 1);
    const address = await put(bytes);
    await close();
    assert.ok(run('mount', '-o', 'remount,ro', dir));
    try {
      volume = await LocalVolume.open({ dir, signal, onState: (state) => states.push(state) });
      store = new ObjectStore({ volume, cache_bytes: 0 });
      assert.deepEqual(await get(address), bytes);
      await assert.rejects(put(content(10, 2)), (error) => isRonError(error, 'not_ready'));
      assert.equal(volume.state.condition, 'read_only');
      assert.match(states.at(-1)!.reason, /read-only/);
      await volume.close();
      volume = undefined;
    } finally {
      assert.ok(run('mount', '-o', 'remount,rw', dir));
    }
    await open();
    assert.deepEqual(await get(address), bytes);
    await put(content(10, 2));
  });
});
