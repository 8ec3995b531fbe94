import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { tempDirFor } from '@ron/testkit';
import { makeDirectory } from './make-directory.ts';

test('a directory is created with its parents, repeatedly and concurrently', async (t) => {
  const dir = tempDirFor(t);
  const path = join(dir, 'a', 'b', 'c');
  await Promise.all([makeDirectory(path), makeDirectory(path), makeDirectory(join(path, 'd'))]);
  await makeDirectory(path);
  for (const made of [path, join(dir, 'a')]) assert.equal((await stat(made)).mode & 0o777, 0o700);
  await writeFile(join(dir, 'file'), '');
  await assert.rejects(makeDirectory(join(dir, 'file')), { code: 'EEXIST' });
  await assert.rejects(makeDirectory(join(dir, 'file', 'below')), { code: 'ENOTDIR' });
});

test('a directory that cannot be created is an error, not an endless loop', async (t) => {
  if (!existsSync('/proc/self')) return t.skip('there is no /proc here');
  await assert.rejects(makeDirectory('/proc/x'), { code: 'ENOENT' });
  await assert.rejects(makeDirectory('/proc/x/y/z'), { code: 'ENOENT' });
});
