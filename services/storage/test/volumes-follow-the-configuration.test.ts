/** A reload or restart adds, drains and removes the directories that the configuration changed. */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import { eventually, MIB, tempDir, removeDir } from '@ron/testkit';
import { assertRefusal } from '@ron/testkit/service';
import { assertServed, startService } from './support.ts';
import { fill, repaired, started, volume, RF2 } from './volumes.ts';

test('a restart without a configured directory drains it first, as a reload does', async () => {
  await using temp = await tempDir();
  const init = { dir: temp.path, flags: [...RF2.slice(1), '--durability.replication_factor=1'] };
  let objects: Buffer[];
  {
    await using service = await started(['a', 'b'], init);
    objects = await fill(service, 9);
  }
  {
    await using service = await started(['b'], init);
    await assertServed(service, objects);
    await eventually('it is removed', async () => (await volume(service, 'a')) === undefined);
  }
  await removeDir(join(temp.path, 'a'));
  await using service = await started(['b'], init);
  assert.ok(service.storage.engine.volumes.isSingle);
  await assertServed(service, objects);
});

test('weight and domain follow a reload', async () => {
  await using service = await started(['a@weight=1', 'b@weight=1', 'c@weight=1']);
  await service.reload(['a@weight=1', 'b@weight=7@domain=shelf', 'c@weight=1']);
  const { weight, domain } = await volume(service, 'b');
  assert.deepEqual([weight, domain], [7, 'shelf']);
});

test('a reload adds a new directory, and drains one that it does not name before it is removed', async () => {
  await using service = await started(['a', 'b']);
  const objects = await fill(service, 9);
  await service.reload(['b', 'c']);
  assert.equal((await volume(service, 'c')).life, 'active');
  await eventually('the old one is removed', async () => (await volume(service, 'a')) === undefined);
  await removeDir(join(service.dir, 'a'));
  await assertServed(service, objects);
  await repaired(service);
});

test('the byte rate of repair follows a reload', async () => {
  await using service = await started(['a', 'b']);
  assert.equal((await service.ask('GET', '/admin/repair')).rate_bytes_per_s, 50 * MIB);
  await service.reload(['a', 'b'], [...RF2, '--durability.repair_pacing=3MiB/s']);
  assert.equal((await service.ask('GET', '/admin/repair')).rate_bytes_per_s, 3 * MIB);
});

test('a single directory is used without a set, and cannot be lost', async () => {
  await using service = await startService();
  assert.equal(service.storage.engine.store.volume, service.storage.engine.volumes.set.members[0]!.volume);
  await fill(service, 3);
  const refused = await service.send('POST', `/admin/volumes/lose?volume=${encodeURIComponent(service.dir)}`, {
    headers: await service.allow(),
  });
  assertRefusal(refused, 409, 'conflict');
});
