/** A volume is removed only once its records are stored elsewhere. */
import assert from 'node:assert/strict';
import { mkdir, rm, statfs, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { reserveBytes } from '@ron/log';
import { bytesOf, eventually, KIB, tempDir, mountTmpfs, NO_MOUNT, removeDir } from '@ron/testkit';
import { assertRefusal, type Json } from '@ron/testkit/service';
import { assertServed } from './support.ts';
import { decide, fill, nameOf, started, volume } from './volumes.ts';

test('a directory can be removed once it is drained, and not before', async () => {
  await using service = await started(['a', 'b', 'c']);
  const objects = await fill(service, 12);
  const early = await service.send('POST', `/admin/volumes/remove?volume=${nameOf(service, 'a')}`, {
    headers: await service.allow(),
  });
  assertRefusal(early, 409, 'conflict');
  await service.ask('POST', `/admin/volumes/drain?volume=${nameOf(service, 'a')}`);
  await eventually('it is empty', async () => (await volume(service, 'a')).life === 'drained');
  const { volumes } = await service.ask('POST', `/admin/volumes/remove?volume=${nameOf(service, 'a')}`);
  assert.deepEqual(
    volumes.map((each: Json) => each.name),
    ['b', 'c'].map((name) => join(service.dir, name)),
  );
  await removeDir(join(service.dir, 'a'));
  await assertServed(service, objects);
});

test('a drain is checked for room even if another directory has just vanished', async () => {
  await using service = await started(['a', 'b', 'c', 'd']);
  await fill(service, 3);
  // At once: the prober has not noticed yet when the drain looks for room.
  await removeDir(join(service.dir, 'b'));
  await service.ask('POST', `/admin/volumes/drain?volume=${nameOf(service, 'a')}`);
  assert.match((await volume(service, 'a')).life, /^drain/);
});

test('a drain continues after a restart, and undrain ends it', async () => {
  await using temp = await tempDir();
  // No plan runs by itself, so no record moves meanwhile.
  const init = { dir: temp.path, flags: ['--durability.replication_factor=2', '--durability.repair_interval=1h'] };
  {
    await using service = await started(['a', 'b', 'c'], init);
    assert.equal((await decide(service, 'drain', 'a')).status, 200);
    assertRefusal(await decide(service, 'drain', 'b'), 409, 'conflict');
  }
  await using service = await started(['a', 'b', 'c'], init);
  assert.match((await volume(service, 'a')).life, /^drain/);
  assert.equal((await decide(service, 'drain', 'a')).status, 200, 'the same again changes nothing');
  assert.equal((await decide(service, 'undrain', 'a')).status, 200);
  assert.equal((await volume(service, 'a')).life, 'active');
  await service.reload(['a', 'b', 'c']);
  assert.equal((await volume(service, 'a')).life, 'active');
  await service.reload(['a@draining', 'b', 'c']);
  assert.match((await volume(service, 'a')).life, /^drain/);
  const refused = await decide(service, 'undrain', 'a');
  assertRefusal(refused, 409, 'conflict');
  assert.match(refused.text, /@draining/);
  await service.reload(['a', 'b', 'c']);
  assert.equal((await volume(service, 'a')).life, 'active');
});

test('a drain is refused, with the sizes, while the others lack room for it', async (t) => {
  await using temp = await tempDir();
  const disk = join(temp.path, 'small');
  await mkdir(disk);
  using mount = mountTmpfs(disk, '16m');
  if (mount === undefined) return t.skip(NO_MOUNT);
  // Both others are on the small disk: they share its space, which counts once.
  await using service = await started(['a@weight=1', 'small/b@weight=1', 'small/c@weight=1'], {
    dir: temp.path,
    flags: ['--durability.replication_factor=2', '--durability.repair_interval=1h', '--storage.segment_bytes=4MiB'],
  });
  for (let key = 1; key <= 6; key++) await service.put(bytesOf(700 * KIB, key));
  const { used_bytes } = await volume(service, 'a');
  const ballast = join(disk, 'ballast');
  // Half of the bytes to be moved fit: counted twice, once for each directory, they would all fit.
  const { bavail, blocks, bsize } = await statfs(disk);
  const room_bytes = bavail * bsize - reserveBytes(blocks * bsize);
  await writeFile(ballast, Buffer.alloc(Math.ceil(room_bytes - 0.6 * used_bytes)));
  const refused = await decide(service, 'drain', 'a');
  assertRefusal(refused, 409, 'conflict');
  assert.match(refused.text, /holds \d+ bytes, the others have room for \d+: add a volume/);
  assert.equal((await volume(service, 'a')).life, 'active', 'nothing has begun');
  await rm(ballast);
  assert.equal((await decide(service, 'drain', 'a')).status, 200);
  assert.match((await volume(service, 'a')).life, /^drain/);
});

test('a drain is refused that would leave too few volumes for copies, domains or the shards of a stripe', async () => {
  const idle = ['--durability.repair_interval=1h'];
  const refusal = async (dirs: string[], flags: string[], because: RegExp): Promise<void> => {
    await using service = await started(dirs, { flags: [...idle, ...flags] });
    const refused = await decide(service, 'drain', 'a');
    assertRefusal(refused, 409, 'conflict');
    assert.match(refused.text, because);
    assert.equal((await volume(service, 'a')).life, 'active', 'nothing has begun');
  };
  const names = ['a', 'b', 'c', 'd', 'e'];
  const stripes = ['--durability.ec=true', '--durability.ec_data_shards=3', '--durability.ec_parity_shards=2'];
  await refusal(['a', 'b'], ['--durability.replication_factor=2'], /2 copies need 2 volumes, 1 would be left/);
  await refusal(
    ['a@domain=x', 'b@domain=y', 'c@domain=y'],
    ['--durability.replication_factor=2'],
    /2 copies need 2 domains, 1 would be left/,
  );
  await refusal(
    names,
    [...stripes, '--durability.replication_factor=1'],
    /stripes of 3\+2 need 5 volumes, 4 would be left/,
  );
  await using service = await started([...names, 'f'], {
    flags: [...idle, ...stripes, '--durability.replication_factor=1'],
  });
  assert.equal((await decide(service, 'drain', 'a')).status, 200, 'with one more it may go');
});
