import assert from 'node:assert/strict';
import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { isRonError } from '@ron/kernel';
import { realFileSystem, type FileSystem } from '@ron/log';
import { tempDirFor } from '@ron/testkit';
import { openUnlock } from './open-unlock.ts';

test('a crash while the key is created does not break the next start', async (t) => {
  const dir = tempDirFor(t);
  const full: FileSystem = {
    ...realFileSystem,
    create: async (path) => {
      const file = await realFileSystem.create(path);
      file.write = () => Promise.reject(Object.assign(new Error('no room'), { code: 'ENOSPC' }));
      return file;
    },
  };
  const open = (fs: FileSystem) => openUnlock({ dir, env: {}, fs, warn: () => undefined });
  await assert.rejects(open(full), /no room/);
  const made = await open(realFileSystem);
  assert.deepEqual(await open(realFileSystem), made, 'the next start reads the same key');
  assert.equal((await stat(join(dir, 'kek'))).mode & 0o777, 0o600);
});

test('of two concurrent starts, the second does not replace the key of the first', async (t) => {
  const dir = tempDirFor(t);
  const open = (fs: FileSystem) => openUnlock({ dir, env: {}, fs, warn: () => undefined });
  const first = await open(realFileSystem);
  let lists = 0;
  const late: FileSystem = {
    ...realFileSystem,
    // This process listed the directory before the other created the key.
    list: async (path) => (lists++ === 0 ? [] : await realFileSystem.list(path)),
  };
  assert.deepEqual(await open(late), first);
  assert.deepEqual(await open(realFileSystem), first);
  using making = realFileSystem.lock!(join(dir, 'kek.lock'));
  assert.ok(making);
  lists = 0;
  await assert.rejects(open(late), (error) => isRonError(error, 'conflict'));
});
