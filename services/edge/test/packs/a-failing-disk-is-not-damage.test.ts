import assert from 'node:assert/strict';
import { rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { isRonError } from '@ron/kernel';
import { realFileSystem, type File, type FileSystem } from '@ron/log';
import { tempDirFor, type After } from '@ron/testkit';
import type { OpenPack } from '../../src/packs/pack.ts';
import { PmtilesOpener } from '../../src/packs/pmtiles/pmtiles-opener.ts';
import { makePmtiles } from './make-pmtiles.ts';
import { someTiles } from './pack-fixtures.ts';

const FILE = makePmtiles({ tiles: someTiles(1, 50) });

/** Opens a pack on a disk whose reads are replaced, and that never has bytes in the page cache. */
async function onDisk(t: After, read: (file: File) => File['read']): Promise<OpenPack> {
  const path = join(tempDirFor(t), 'pack.pmtiles');
  await writeFile(path, FILE);
  const fs: FileSystem = {
    ...realFileSystem,
    async open(name, access) {
      const file = await realFileSystem.open(name, access);
      const own = { readNow: () => undefined, read: read(file) };
      return new Proxy(file, {
        get: (_, key) => (key in own ? own[key as keyof typeof own] : bound(file, key as keyof File)),
      });
    },
  };
  const opener = new PmtilesOpener({ fs });
  t.after(() => opener[Symbol.asyncDispose]());
  const { signal } = new AbortController();
  const pack = await opener.open({ path, sidecar: undefined, expect: undefined, onDamage: assert.fail, signal });
  t.after(() => pack.close());
  return pack;
}

const bound = (file: File, name: keyof File): unknown => (file[name] as (() => unknown) | undefined)?.bind(file);

test('a disk that fails for a moment gives not_ready, and the next read succeeds', async (t) => {
  let isFailing = true;
  const pack = await onDisk(t, (file) => (...args) => {
    if (isFailing) return Promise.reject(Object.assign(new Error('EIO'), { code: 'EIO' }));
    return file.read(...args);
  });
  const { signal } = new AbortController();
  await assert.rejects(pack.tile(1, 0, 0, signal), (error) => isRonError(error, 'not_ready'));
  assert.equal(pack.problem, undefined);
  isFailing = false;
  assert.ok((await pack.tile(1, 0, 0, signal)) !== undefined);
  assert.equal(pack.tileNow!(1, 0, 0), undefined, 'the page cache has nothing');
});

test('[edge I-5] a caller that leaves does not wait for a disk that hangs', async (t) => {
  let leaving: AbortController | undefined;
  const pack = await onDisk(t, (file) => (...args) => {
    if (leaving === undefined) return file.read(...args);
    leaving.abort(new Error('left'));
    return new Promise<number>(() => undefined);
  });
  for (const isDirectoryKnown of [false, true]) {
    leaving = new AbortController();
    await assert.rejects(pack.tile(1, 0, 0, leaving.signal), /left/, `directory known: ${isDirectoryKnown}`);
    leaving = undefined;
    assert.ok((await pack.tile(1, 1, 1, new AbortController().signal)) !== undefined);
  }
});

test('a file that is replaced while it is verified is refused', async (t) => {
  const dir = tempDirFor(t);
  const path = join(dir, 'pack.pmtiles');
  await writeFile(path, FILE);
  const fs: FileSystem = {
    ...realFileSystem,
    async open(name, access) {
      await writeFile(join(dir, 'new'), FILE);
      await rename(join(dir, 'new'), path);
      return await realFileSystem.open(name, access);
    },
  };
  await using opener = new PmtilesOpener({ fs });
  const { signal } = new AbortController();
  const opened = opener.open({ path, sidecar: undefined, expect: undefined, onDamage: assert.fail, signal });
  await assert.rejects(opened, /replaced while it was verified/);
});
