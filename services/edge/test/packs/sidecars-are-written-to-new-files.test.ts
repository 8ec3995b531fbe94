/** A directory of packs that another user can write to: links and pipes in place of the files that edge writes. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { lstat, readFile, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { somePmtiles } from './registry-support.ts';
import { testPacks } from './pack-fixtures.ts';

test('a link with the temporary name of a sidecar is not followed', async (t) => {
  const packs = testPacks(t);
  const target = join(packs.dir, 'target');
  await writeFile(target, 'a file of another program');
  await symlink(target, join(packs.dir, 'a.pmtiles.b3.tmp'));
  const { path } = await packs.open('a', somePmtiles(1));
  assert.equal(await readFile(target, 'utf8'), 'a file of another program');
  assert.ok((await lstat(`${path}.b3`)).isFile());
});

test('pipes with the names of a sidecar and of its temporary file stop no verification', async (t) => {
  const packs = testPacks(t);
  for (const name of ['a.pmtiles.b3.tmp', 'a.pmtiles.b3']) execFileSync('mkfifo', [join(packs.dir, name)]);
  const { path } = await packs.open('a', somePmtiles(1));
  assert.ok((await lstat(`${path}.b3`)).isFile());
});
