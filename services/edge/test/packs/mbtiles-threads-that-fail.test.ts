/** Threads that hang or crash while they read a tile: the call ends, the thread is replaced, and other reads go on. */
import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { test } from 'node:test';
import { isRonError, NEVER } from '@ron/kernel';
import { makeMbtiles, pngTile, pngTiles } from './make-mbtiles.ts';
import { openTestPacks } from './mbtiles-support.ts';

const module = new URL('./faulty-mbtiles-thread.ts', import.meta.url);

test('a read that hangs ends at its deadline, and both threads are replaced', async () => {
  await using packs = await openTestPacks({ module, read_ms: 2000 });
  makeMbtiles({ path: packs.path('a.mbtiles'), tiles: pngTiles(2) });
  await using pack = await packs.open('a.mbtiles');
  const hanging = [pack.tile(1, 0, 0, NEVER), pack.tile(1, 0, 1, NEVER)];
  const isTurning = new Promise<boolean>((resolve) => setImmediate(() => resolve(true)));
  // [edge I-7] Both threads hang, and the event loop goes on.
  assert.ok(await isTurning);
  for (const read of hanging) await assert.rejects(read, (error) => isRonError(error, 'timeout'));
  for (let x = 0; x < 4; x += 1) {
    assert.deepEqual((await pack.tile(2, x, 1, NEVER))?.bytes, new Uint8Array(pngTile(2, x, 1)));
  }
  assert.deepEqual(packs.damage, []);
});

test('a thread that crashes is replaced, and its read is repeated', async () => {
  await using packs = await openTestPacks({ module });
  makeMbtiles({ path: packs.path('a.mbtiles'), tiles: pngTiles(2) });
  await using pack = await packs.open('a.mbtiles');
  assert.deepEqual((await pack.tile(1, 1, 0, NEVER))?.bytes, new Uint8Array(pngTile(1, 1, 0)));
});

test('callers that leave are answered at once, and do not end threads', async () => {
  await using packs = await openTestPacks({ module });
  makeMbtiles({ path: packs.path('a.mbtiles'), tiles: pngTiles(2) });
  await using pack = await packs.open('a.mbtiles');
  for (let round = 0; round < 10; round += 1) {
    const client = new AbortController();
    const reads = [0, 1, 2].map((x) => pack.tile(2, x, 0, client.signal));
    client.abort(new Error('left'));
    // [edge I-5] The wait ends with the signal.
    for (const read of reads) await assert.rejects(read, /left/);
    await assert.rejects(pack.tile(2, 1, 1, client.signal), /left/);
    assert.deepEqual((await pack.tile(2, 1, 1, NEVER))?.bytes, new Uint8Array(pngTile(2, 1, 1)));
  }
  const threads = (await readFile(packs.path('a.mbtiles.threads'), 'utf8')).trim().split(' ');
  assert.equal(new Set(threads).size, 2);
});
