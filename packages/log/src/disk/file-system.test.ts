import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { isRonError } from '@ron/kernel';
import { tempDirFor } from '@ron/testkit';
import { realFileSystem } from './file-system.ts';

test('a path that is not a regular file is refused at once: a pipe without a writer, a directory, a device', async (t) => {
  const dir = tempDirFor(t);
  const pipe = join(dir, 'pipe');
  execFileSync('mkfifo', [pipe]);
  for (const path of [pipe, dir, '/dev/null']) {
    await assert.rejects(realFileSystem.open(path, 'read'), (error) => isRonError(error, 'not_ready'), path);
  }
  const path = join(dir, 'file');
  await writeFile(path, 'hello');
  const file = await realFileSystem.open(path, 'write');
  assert.equal(await file.size(), 5);
  await file.close();
  await assert.rejects(realFileSystem.open(join(dir, 'none'), 'read'), { code: 'ENOENT' });
});
