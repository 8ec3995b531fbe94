/** Another file gets the name of a pack while the pack is uploaded. */
import assert from 'node:assert/strict';
import { rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { NEVER } from '@ron/kernel';
import { eventually, tempDir } from '@ron/testkit';
import { addressOf } from '@ron/testkit/service';
import type { OpenPack, PackOpener } from '../../src/packs/pack.ts';
import { someMbtiles, somePmtiles } from './registry-support.ts';
import { openRegistry } from './stub-openers.ts';

function packWith(address: string): OpenPack {
  return { info: { address }, problem: undefined, close: () => Promise.resolve() } as unknown as OpenPack;
}

test('an upload beside a new file of the other format is mounted with the identity of its own file', async () => {
  await using temp = await tempDir();
  const body = await someMbtiles(1);
  const other = somePmtiles(2);
  let isFirst = true;
  const opener: PackOpener = {
    open: async () => {
      if (!isFirst) return packWith(addressOf(other));
      isFirst = false;
      await writeFile(join(temp.path, 'a.pmtiles'), other);
      return packWith(addressOf(body));
    },
    [Symbol.asyncDispose]: () => Promise.resolve(),
  };
  const { registry, put, stopping, task } = openRegistry(temp.path, opener);
  // The start removes uploads that a killed process left.
  await registry.reload(NEVER);
  assert.equal(await put('a', body), 'mounted');
  const { dev, ino, size, mtimeNs } = await stat(join(temp.path, 'a.mbtiles'), { bigint: true });
  assert.equal(registry.get('a')!.identity, `${dev} ${ino} ${size} ${mtimeNs}`);
  // The operator removes one of the two files: the pack of the other is served.
  await rm(join(temp.path, 'a.mbtiles'));
  await eventually('the other file is mounted', () => registry.get('a')!.pack.info.address === addressOf(other));
  stopping.abort();
  await task;
  await registry[Symbol.asyncDispose]();
});
