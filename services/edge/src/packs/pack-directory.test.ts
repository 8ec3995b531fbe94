import assert from 'node:assert/strict';
import { readdir } from 'node:fs/promises';
import { test } from 'node:test';
import { DiskGate, realFileSystem } from '@ron/log';
import { tempDir } from '@ron/testkit';
import { PackDirectory } from './pack-directory.ts';

test('uploads of an earlier process are removed, those of this one are not', async () => {
  await using temp = await tempDir();
  const opened = () =>
    new PackDirectory(temp.path, realFileSystem, new DiskGate({ calls_max: 2, late_ms: 5000 }), 1000);
  const earlier = await opened().createUpload('a');
  await earlier.file.close();
  const directory = opened();
  const own = await directory.createUpload('a');
  await directory.removeLeftovers();
  assert.deepEqual(
    (await readdir(temp.path)).map((file) => directory.pathOf(file)),
    [own.path],
  );
  await directory.discard(own);
});
