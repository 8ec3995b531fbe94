/** `PUT /edge/packs/{name}?address=`: edge reads the pack from its storage, verified. */
import assert from 'node:assert/strict';
import { readdir } from 'node:fs/promises';
import { test } from 'node:test';
import { StorageClient } from '@ron/client';
import { addressOf, assertRefusal, startStorage } from '@ron/testkit/service';
import { startService } from '../support.ts';
import { packsDir, putPack, readTile, someMbtiles, somePmtiles, tileOf, untilReady } from './registry-support.ts';

const NO_BODY = Buffer.alloc(0);

test('packs of storage are mounted; absent and bad objects leave nothing', async (t) => {
  const storage = await startStorage(t);
  const client = new StorageClient({ url: storage.url, capability: storage.token });
  await using edge = await startService({ flags: [`--edge.storage_url=${storage.url}`] });
  await untilReady(edge);
  const packs = { pm: somePmtiles(1), mb: await someMbtiles(2) };
  for (const [name, pack] of Object.entries(packs)) {
    const { address } = await client.put(pack);
    const reply = await putPack(edge, name, NO_BODY, `?address=${address}`);
    assert.equal(reply.status, 201, reply.text);
    assert.equal(reply.json.address, addressOf(pack));
  }
  assert.deepEqual(await readTile(edge, 'pm'), Buffer.from(tileOf(1, 2, 3, 1)));
  assert.deepEqual(await readTile(edge, 'mb'), Buffer.from(tileOf(2, 2, 3, 1)));
  const before = await readdir(packsDir(edge));
  const absent = addressOf(Buffer.from('absent'));
  assertRefusal(await putPack(edge, 'no', NO_BODY, `?address=${absent}`), 404, 'not_found');
  const { address } = await client.put(Buffer.from('an object that is not a pack'));
  assertRefusal(await putPack(edge, 'no', NO_BODY, `?address=${address}`), 400, 'validation');
  await storage.kill();
  assertRefusal(await putPack(edge, 'no', NO_BODY, `?address=${address}`), 503, 'not_ready');
  assert.deepEqual(await readdir(packsDir(edge)), before);
});
