/** While the disk fails, is full or read-only, assets are kept in memory, and hits never fail. It recovers by itself. */
import assert from 'node:assert/strict';
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { realFileSystem, type File, type FileSystem } from '@ron/log';
import { eventually, mountTmpfs, NO_MOUNT, tempDirFor, type Mount } from '@ron/testkit';
import { bodyOf, fill, forgetRam, keyOf, KIB, MIB, read, startCache, type TestCache } from './support.ts';

/** A disk on which the named calls fail; `hang`: reads end with `hanging`. */
function failingDisk(): { fs: FileSystem; failing: Set<string>; hanging: PromiseWithResolvers<void> } {
  const failing = new Set<string>();
  const hanging = Promise.withResolvers<void>();
  const watched = (file: File): File =>
    new Proxy(file, {
      get: (target, name) => {
        const value: unknown = Reflect.get(target, name);
        if (typeof value !== 'function') return value;
        if (name === 'readNow')
          return (...args: unknown[]) =>
            failing.has('read') || failing.has('hang') ? undefined : value.apply(target, args);
        return (...args: unknown[]) => {
          const error = Object.assign(new Error('EIO: the disk failed'), { code: 'EIO' });
          if (name === 'read' && failing.has('hang')) return hanging.promise.then(() => value.apply(target, args));
          return failing.has(String(name)) ? Promise.reject(error) : (value.apply(target, args) as unknown);
        };
      },
    });
  const fs = {
    ...realFileSystem,
    create: async (path: string) => watched(await realFileSystem.create(path)),
    open: async (path: string, access: 'read' | 'write') => watched(await realFileSystem.open(path, access)),
  };
  return { fs, failing, hanging };
}

/** Fills go on; a new asset is served from memory, and one from before if the disk can still be read. */
async function expectMemoryOnly({ cache }: TestCache, seed: number): Promise<void> {
  await eventually('the problem is reported', async () => {
    assert.ok(await fill(cache, keyOf(seed), bodyOf(10 * KIB, seed)), 'kept in memory');
    return cache.problem !== undefined;
  });
  assert.deepEqual(await read(cache, keyOf(seed)), { bytes: bodyOf(10 * KIB, seed), tier: 'ram' });
  assert.ok(await fill(cache, keyOf(`${seed}/large`), bodyOf(200 * KIB, seed)), 'a large one is kept in memory');
  assert.equal((await read(cache, keyOf(`${seed}/large`)))?.tier, 'ram');
}

async function expectDisk({ cache }: TestCache, seed: number): Promise<void> {
  await eventually('the disk works again', () => cache.problem === undefined);
  await eventually('assets are stored again', async () => {
    await fill(cache, keyOf(seed), bodyOf(10 * KIB, seed));
    forgetRam(cache);
    return (await read(cache, keyOf(seed)))?.tier === 'cas';
  });
}

for (const call of ['write', 'sync']) {
  test(`a disk whose ${call} fails`, async (t) => {
    const { fs, failing } = failingDisk();
    await using opened = await startCache({ dir: tempDirFor(t), fs });
    await fill(opened.cache, keyOf(1), bodyOf(10 * KIB, 1));
    failing.add(call);
    await expectMemoryOnly(opened, 2);
    forgetRam(opened.cache);
    assert.deepEqual((await read(opened.cache, keyOf(1)))?.bytes, bodyOf(10 * KIB, 1), 'reads still work');
    assert.match(opened.problems.join(), /EIO|failed/);
    failing.clear();
    await expectDisk(opened, 3);
  });
}

test('a disk whose reads fail is a miss', async (t) => {
  const { fs, failing } = failingDisk();
  await using opened = await startCache({ dir: tempDirFor(t), fs });
  const { cache } = opened;
  await fill(cache, keyOf(1), bodyOf(10 * KIB, 1));
  await fill(cache, keyOf(2), bodyOf(10 * KIB, 2));
  cache.ram.delete(keyOf(1));
  failing.add('read');
  assert.equal(await read(cache, keyOf(1)), undefined);
  assert.match(cache.problem ?? '', /read/);
  assert.equal(await read(cache, keyOf('absent')), undefined);
  assert.match(cache.problem ?? '', /read/, 'a key that is not on disk proves nothing');
  assert.equal((await read(cache, keyOf(2)))?.tier, 'ram');
  failing.clear();
  assert.deepEqual((await read(cache, keyOf(1)))?.bytes, bodyOf(10 * KIB, 1));
  assert.equal(cache.problem, undefined);
});

test('a disk whose reads hang is a miss while there is time for a fill', async (t) => {
  const { fs, failing, hanging } = failingDisk();
  await using opened = await startCache({ dir: tempDirFor(t), fs });
  const { cache } = opened;
  await fill(cache, keyOf(1), bodyOf(10 * KIB, 1));
  forgetRam(cache);
  failing.add('hang');
  // Well within the 5 s of a request.
  assert.equal(await Promise.race([read(cache, keyOf(1)), sleep(3000, 'late', { ref: false })]), undefined);
  assert.match(cache.problem ?? '', /read/);
  failing.clear();
  hanging.resolve();
  assert.deepEqual((await read(cache, keyOf(1)))?.bytes, bodyOf(10 * KIB, 1));
});

test('a directory that cannot be opened is opened later', async (t) => {
  const dir = tempDirFor(t);
  writeFileSync(join(dir, 'cache'), 'a file');
  await using opened = await startCache({ dir });
  assert.match(opened.cache.problem ?? '', /failed to open/);
  await expectMemoryOnly(opened, 1);
  await assert.rejects(opened.cache.purge({ prefix: 'live/' }, AbortSignal.timeout(1000)), { code: 'not_ready' });
  assert.equal(await read(opened.cache, keyOf(1)), undefined, 'memory is purged');
  rmSync(join(dir, 'cache'));
  await expectDisk(opened, 2);
});

/** A small file system for the cache; undefined if mounting is not permitted. */
function mountCache(t: TestContext): { dir: string; mount: Mount } | undefined {
  const dir = tempDirFor(t);
  mkdirSync(join(dir, 'cache'));
  const mount = mountTmpfs(join(dir, 'cache'), '4m');
  if (mount !== undefined) return { dir, mount };
  t.skip(NO_MOUNT);
  return undefined;
}

test('a full disk', async (t) => {
  const mounted = mountCache(t);
  if (mounted === undefined) return;
  const { dir } = mounted;
  using mount = mounted.mount;
  await using opened = await startCache({ dir, flags: [`--cache.disk_bytes=${64 * MIB}`] });
  const { cache } = opened;
  for (let seed = 1; cache.problem === undefined && seed < 1000; seed++) {
    assert.ok(await fill(cache, keyOf(seed), bodyOf(40 * KIB, seed)), 'kept in memory at least');
  }
  assert.match(cache.problem ?? '', /full/);
  await expectMemoryOnly(opened, 2000);
  assert.ok(mount.remount('size=32m'));
  await expectDisk(opened, 2001);
});

test('a read-only disk', async (t) => {
  const mounted = mountCache(t);
  if (mounted === undefined) return;
  const { dir } = mounted;
  using mount = mounted.mount;
  const before = await startCache({ dir });
  await fill(before.cache, keyOf('first'), bodyOf(10 * KIB, 0));
  await before.close();
  assert.ok(mount.remount('ro'));
  await using opened = await startCache({ dir });
  await expectMemoryOnly(opened, 1);
  forgetRam(opened.cache);
  assert.equal((await read(opened.cache, keyOf('first')))?.tier, 'cas', 'assets on disk are still served');
  assert.ok(mount.remount('rw'));
  await expectDisk(opened, 2);
});
