/** A volume is known by its id, wherever its directory lies. */
import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { cp, readFile, rename } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { bytesOf, tempDir } from '@ron/testkit';
import { addressOf, type Json } from '@ron/testkit/service';
import { startService, type TestService } from './support.ts';

const QUICK = ['--durability.replication_factor=2', '--durability.repair_interval=1s', '--storage.fast_path=false'];

test('of a directory and a copy of it, the older one is refused, and both are named', async () => {
  await using temp = await tempDir();
  {
    await using service = await startService({ dir: temp.path, dirs: ['a', 'b'], flags: QUICK });
    await service.put(bytesOf(1000));
  }
  await cp(join(temp.path, 'a'), join(temp.path, 'copy'), { recursive: true });
  const reasons = async (service: TestService): Promise<string[]> =>
    (await service.ask('GET', '/admin/volumes')).volumes.map((each: Json) => each.reason);
  {
    // With the same epoch, the second one.
    await using service = await startService({ dir: temp.path, dirs: ['a', 'copy', 'b'], flags: QUICK });
    const refused = (await reasons(service)).filter((reason) => reason !== '');
    assert.equal(refused.length, 1);
    assert.match(refused[0]!, /\/copy: a copy of the volume in .*\/a \(/);
  }
  // By now it is older, wherever it is named.
  await using service = await startService({ dir: temp.path, dirs: ['copy', 'a', 'b'], flags: QUICK });
  const [refused, ...others] = (await reasons(service)).toSorted().toReversed();
  assert.match(refused!, /\/copy: an older copy of the volume in .*\/a \(/);
  assert.deepEqual(others, ['', '']);
  // It stays refused, and its epoch as it is, however often it is looked at.
  const superblock = await readFile(join(temp.path, 'copy', 'superblock'));
  for (let look = 0; look < 3; look++) await service.storage.engine.volumes.probe(new AbortController().signal);
  assert.deepEqual(await readFile(join(temp.path, 'copy', 'superblock')), superblock);
  assert.match((await reasons(service)).join(), /copy of the volume in .*\/a \(/);
  assert.equal((await service.send('GET', `/o/${addressOf(bytesOf(1000))}`)).status, 200);
});

test('a volume is named by its directory or its id, and one that is in no directory can be given up', async () => {
  await using temp = await tempDir();
  const dirs = ['a', 'b', 'c', 'd'];
  let ids: string[] = [];
  {
    await using service = await startService({ dir: temp.path, dirs, flags: QUICK });
    ids = (await service.ask('GET', '/admin/volumes')).volumes.map((each: Json) => each.id);
    await service.ask('POST', `/admin/volumes/drain?volume=${ids[3]}`);
  }
  // The disk of b is mounted in the place of a, which is away; where b was, there is nothing.
  await rename(join(temp.path, 'a'), join(temp.path, 'away'));
  await rename(join(temp.path, 'b'), join(temp.path, 'a'));
  await using service = await startService({ dir: temp.path, dirs, flags: QUICK });
  const { volumes } = await service.ask('GET', '/admin/volumes');
  const found = (id: string): Json => volumes.find((each: Json) => each.id === id);
  assert.deepEqual([found(ids[1]!).name, found(ids[1]!).life], [join(temp.path, 'a'), 'active']);
  assert.equal(found(ids[3]!).life.slice(0, 5), 'drain');
  assert.match(found(ids[0]!).reason, /last seen in .*\/a, is away/);
  const empty = volumes.find((each: Json) => each.name === join(temp.path, 'b'));
  assert.match(empty.reason, /it is empty, and the volume .* is away/);
  assert.ok(!existsSync(join(temp.path, 'b', 'segments')), 'it may be the mount point of a');
  const lost = await service.ask('POST', `/admin/volumes/lose?volume=${ids[0]}`);
  assert.match(lost.volumes.find((each: Json) => each.id === ids[0]).reason, /it was given up/);
  await service.ask('POST', `/admin/volumes/remove?volume=${ids[0]}`);
  const left = await service.ask('GET', '/admin/volumes');
  assert.ok(!left.volumes.some((each: Json) => each.id === ids[0]));
});
