/** A node does not look empty: a start that misses volumes that it had names them instead of answering 404. */
import assert from 'node:assert/strict';
import { rename } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { setTimeout as later } from 'node:timers/promises';
import { bytesOf, tempDir } from '@ron/testkit';
import { startService, type TestService } from './support.ts';

const CONTENT = bytesOf(200_000);

async function started(dir: string, dirs: readonly string[], ...more: string[]): Promise<TestService> {
  return await startService({ dir, dirs, flags: [`--volumes_file=${join(dir, 'volumes.json')}`, ...more] });
}

async function storeIn(dir: string, dirs: readonly string[]): Promise<string> {
  await using service = await started(dir, dirs);
  return await service.put(CONTENT);
}

test('a start with other directories answers 503 with the missing volumes, until they are given up', async () => {
  await using temp = await tempDir();
  const dir = temp.path;
  const address = await storeIn(dir, ['a', 'b', 'c']);
  await using service = await started(dir, ['other']);
  const reply = await service.send('GET', `/o/${address}`);
  assert.equal(reply.status, 503, reply.text);
  for (const name of ['a', 'b', 'c']) assert.match(reply.text, new RegExp(join(dir, name)));
  assert.match((await service.send('GET', '/readyz')).text, /is away/);
  const { volumes, incomplete } = await service.ask('GET', '/admin/volumes');
  assert.equal(volumes.length, 4);
  assert.match(incomplete, /is away/);
  for (const name of ['a', 'b', 'c']) {
    await service.ask('POST', `/admin/volumes/lose?volume=${encodeURIComponent(join(dir, name))}`);
  }
  assert.equal((await service.send('GET', `/o/${address}`)).status, 404);
});

test('volumes that were given up are let go, and the next start does not miss them', async () => {
  await using temp = await tempDir();
  const dir = temp.path;
  await storeIn(dir, ['a', 'b']);
  {
    await using service = await started(dir, ['other']);
    for (const name of ['a', 'b']) {
      const volume = encodeURIComponent(join(dir, name));
      await service.ask('POST', `/admin/volumes/lose?volume=${volume}`);
    }
    await service.ask('POST', '/admin/repair');
    while ((await service.ask('GET', '/admin/volumes')).volumes.length > 1) await later(20);
  }
  await using service = await started(dir, ['other']);
  // The last of them may have been let go in memory alone when the first service ended.
  while ((await service.ask('GET', '/admin/volumes')).volumes.length > 1) await later(20);
  assert.doesNotMatch((await service.send('GET', '/readyz')).text, /away/);
});

test('with durability.degraded the same start answers 404', async () => {
  await using temp = await tempDir();
  const address = await storeIn(temp.path, ['a', 'b', 'c']);
  await using service = await started(temp.path, ['other'], '--durability.degraded=true');
  assert.equal((await service.send('GET', `/o/${address}`)).status, 404);
});

test('an empty directory in the place of the only volume is not taken for a new one', async () => {
  await using temp = await tempDir();
  const dir = temp.path;
  const address = await storeIn(dir, ['a']);
  await rename(join(dir, 'a'), join(dir, 'away'));
  await assert.rejects(started(dir, ['a']), /gone, or empty.*delete .*volumes\.json/);
  await rename(join(dir, 'away'), join(dir, 'a'));
  await using service = await started(dir, ['a']);
  assert.equal((await service.send('GET', `/o/${address}`)).status, 200);
});

test('a directory that lies elsewhere is the same volume', async () => {
  await using temp = await tempDir();
  const dir = temp.path;
  const address = await storeIn(dir, ['a']);
  await rename(join(dir, 'a'), join(dir, 'moved'));
  await using service = await started(dir, ['moved']);
  assert.equal((await service.send('GET', `/o/${address}`)).status, 200);
  assert.equal((await service.ask('GET', '/admin/volumes')).volumes.length, 1);
});
