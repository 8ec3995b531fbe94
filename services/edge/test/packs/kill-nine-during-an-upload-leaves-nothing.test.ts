/** A process that is killed while it receives a pack: after the restart the temporary file is gone, and other packs are served. */
import assert from 'node:assert/strict';
import { readdir } from 'node:fs/promises';
import { request } from 'node:http';
import { join } from 'node:path';
import { test } from 'node:test';
import { eventually, tempDir } from '@ron/testkit';
import { startService } from '../support.ts';
import { startProcess } from '../process.ts';
import { isReady, mountPack, readTile, somePmtiles, tileOf, untilReady } from './registry-support.ts';

test('kill -9 during an upload', async () => {
  await using temp = await tempDir();
  const dir = join(temp.path, 'data');
  const packs = join(dir, 'packs');
  {
    await using edge = await startService({ dir });
    await untilReady(edge);
    await mountPack(edge, 'a', somePmtiles(1));
  }
  {
    const { process, headers } = await startProcess(temp.path);
    await using _ = process;
    const upload = request(`${process.url}/edge/packs/a`, { method: 'PUT', headers });
    upload.on('error', () => undefined);
    upload.write(somePmtiles(2).subarray(0, 300));
    const hasBegun = async (): Promise<boolean> => (await readdir(packs)).some((file) => file.endsWith('.upload'));
    await eventually('the upload has begun', hasBegun);
    await process.kill();
  }
  assert.ok((await readdir(packs)).some((file) => file.endsWith('.upload')));
  await using edge = await startService({ dir });
  await eventually('edge is ready', () => isReady(edge));
  assert.deepEqual((await readdir(packs)).toSorted(), ['a.pmtiles', 'a.pmtiles.b3']);
  assert.deepEqual(await readTile(edge, 'a'), Buffer.from(tileOf(1, 2, 3, 1)));
});
