/** Tiles of several MiB in the page cache: the event loop turns between the pieces of all reads. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { gzipSync } from 'node:zlib';
import { bytesOf } from '@ron/testkit';
import { AssetEntry } from '../../src/assets/asset-entry.ts';
import { decodedTile, storedTile } from '../../src/assets/tile-answer.ts';
import { makePmtiles } from './make-pmtiles.ts';
import { testPacks } from './pack-fixtures.ts';

const MIB = 1024 * 1024;
const READS = 8;
const { signal } = new AbortController();

/** Counts the turns of the event loop. */
class Turns implements Disposable {
  count = 0;
  #isCounting = true;

  constructor() {
    const turn = (): void => {
      this.count += 1;
      if (this.#isCounting) setImmediate(turn);
    };
    setImmediate(turn);
  }

  [Symbol.dispose](): void {
    this.#isCounting = false;
  }
}

test('concurrent reads of large tiles verify at most 1 MiB in one turn of the event loop', async (t) => {
  const tile = bytesOf(4 * MIB, 1);
  const pack = await testPacks(t).open('a', makePmtiles({ tiles: [{ z: 0, x: 0, y: 0, bytes: tile }], type: 'png' }));
  assert.ok(Buffer.from((await pack.tile(0, 0, 0, signal))!.bytes).equals(tile));
  // [edge I-7]
  using turns = new Turns();
  await Promise.all(Array.from({ length: READS }, () => pack.tile(0, 0, 0, signal)));
  assert.ok(turns.count >= READS * 4, `${turns.count} turns`);
});

test('concurrently decoded tiles are joined and hashed in turns of their own', async () => {
  const bytes = gzipSync(bytesOf(2 * MIB, 1));
  const entry = new AssetEntry(storedTile({ bytes, encoding: 'gzip' }, 'mvt', 'pack', true), 'pack');
  const limits = { ratio_max: 10, bytes_max: 10 * MIB };
  using turns = new Turns();
  const ended = Array.from({ length: READS }, async () => {
    await decodedTile(entry, 'identity', limits, signal);
    return turns.count;
  });
  assert.equal(new Set(await Promise.all(ended)).size, READS);
});
