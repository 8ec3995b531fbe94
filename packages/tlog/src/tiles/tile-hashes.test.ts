import assert from 'node:assert/strict';
import { test } from 'node:test';
import { leafHash } from '../tree/hash.ts';
import { treeHash } from '../testing/index.ts';
import { TileCache, TileHashes } from './tile-hashes.ts';

const SIZE = 5 * 256 + 100;
const entries = Array.from({ length: SIZE }, (_, index) => Buffer.from(`entry ${index}`));
const leaves = entries.map(leafHash);

test('tiles are read once while the cache has room; the least recently used are evicted', async () => {
  const reads: number[] = [];
  const cache = new TileCache(3);
  const reader = (size: number): TileHashes =>
    new TileHashes(
      size,
      async (_level, index, width) => {
        reads.push(index);
        return Buffer.concat(leaves.slice(index * 256, index * 256 + width));
      },
      cache,
    );
  const read = async (size: number, ...tiles: number[]): Promise<number[]> => {
    reads.length = 0;
    for (const tile of tiles) {
      const hash = await reader(size).node(3, tile * 32 + 1);
      assert.deepEqual(Buffer.from(hash), treeHash(entries.slice(tile * 256 + 8, tile * 256 + 16)));
    }
    return [...reads];
  };
  assert.deepEqual(await read(SIZE, 0, 1, 2, 0, 1, 2), [0, 1, 2]);
  assert.deepEqual(await read(SIZE, 0, 3, 0, 2, 1), [3, 1], 'tile 1 was the least recently used');
  assert.deepEqual(await read(SIZE, 4, 5), [4, 5]);
  // A partial tile counts as another tile once it has grown.
  assert.deepEqual(await read(SIZE - 50, 5), [5]);
  assert.deepEqual(await read(SIZE, 5), []);
});

test('nodes outside of the tree are refused', async () => {
  const reader = new TileHashes(10, async () => Buffer.concat(leaves.slice(0, 10)));
  await assert.rejects(reader.node(0, 10), { code: 'internal' });
  await assert.rejects(reader.node(3, 1), { code: 'internal' });
  await assert.rejects(reader.node(8, 0), { code: 'internal' });
  assert.deepEqual(Buffer.from(await reader.node(3, 0)), treeHash(entries.slice(0, 8)));
});
