/** The hashes of a replaced pack take 512 bytes for each MiB of its file: they are freed although its tiles are in memory. */
import assert from 'node:assert/strict';
import { setFlagsFromString } from 'node:v8';
import { test } from 'node:test';
import { runInNewContext } from 'node:vm';
import { eventually } from '@ron/testkit';
import { startService, type TestEdge } from '../support.ts';
import { mountPack, readTile, somePmtiles, untilReady } from './registry-support.ts';

setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc') as () => void;

const hashesOf = (edge: TestEdge): WeakRef<object> => new WeakRef(edge.edge.packs.get('a')!.pack.groups!.values);

test('a tile in memory does not keep the hashes of its replaced pack', async () => {
  await using edge = await startService();
  await untilReady(edge);
  await mountPack(edge, 'a', somePmtiles(1));
  const hashes = hashesOf(edge);
  // The second read keeps the tile, the third finds it.
  for (let read = 0; read < 3; read += 1) await readTile(edge, 'a');
  assert.ok((await edge.metric('edge_hits_total{tier="ram"}')) > 0);
  await mountPack(edge, 'a', somePmtiles(2));
  await eventually('the hashes are freed', () => {
    collect();
    return hashes.deref() === undefined;
  });
});
