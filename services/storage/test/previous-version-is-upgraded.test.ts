/** Directories of the previous version, which knew volumes by their paths, are upgraded at the first start. */
import assert from 'node:assert/strict';
import { readFile, rename } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { legacyVolumeId } from '@ron/cas';
import { eventually, tempDir, removeDir } from '@ron/testkit';
import { addressOf, type Json } from '@ron/testkit/service';
import { DIRS, FLAGS, LARGE, REMOVED, SMALL, unpack } from './fixtures/previous.ts';
import { assertServed, runTask, startService, type TestService } from './support.ts';

const ALL = [...SMALL, ...LARGE];
const COLD = ['--storage.cache_bytes=1MiB', '--storage.fast_path=false'];

const volumesOf = async (service: TestService): Promise<Json[]> => (await service.ask('GET', '/admin/volumes')).volumes;

/** The ids of a, b, c and d; each is the same volume as in the previous version. */
async function assertUpgraded(service: TestService, lives: readonly RegExp[]): Promise<string[]> {
  const volumes = await volumesOf(service);
  assert.equal(volumes.length, 4);
  for (const [index, volume] of volumes.entries()) {
    assert.match(volume.life, lives[index]!);
    assert.deepEqual([volume.reason, volume.is_current, volume.condition], ['', true, 'ok']);
    const { id, former } = JSON.parse((await readFile(join(volume.name, 'superblock'), 'utf8')).split('\n')[0]!);
    assert.equal(volume.id, id);
    assert.equal(id, legacyVolumeId(former));
    assert.match(former, new RegExp(`/${volume.name.at(-1)}$`));
  }
  return volumes.map((volume) => volume.id);
}

/** How many stripes there are in the form of the previous version, and in all. */
async function countStripes({ storage }: TestService): Promise<{ named: number; all: number }> {
  const count = { named: 0, all: 0 };
  const { set } = storage.engine.volumes;
  await set.stripes.walk(new AbortController().signal, async ({ id }) => {
    count.all += 1;
    const views = await set.stripes.views(id, new AbortController().signal);
    if ([...views.values()].some((view) => view.isNamed === true)) count.named += 1;
  });
  return count;
}

test('copies: objects, pins, removals and a drain are as before, after the first start and the second', async () => {
  await using temp = await tempDir();
  await unpack('replicated', temp.path);
  const lives = [/^active$/, /^active$/, /^active$/, /^(?:draining|drained)$/];
  let ids: string[] = [];
  {
    await using service = await startService({ dir: temp.path, dirs: DIRS, flags: [...FLAGS.replicated, ...COLD] });
    ids = await assertUpgraded(service, lives);
    await assertServed(service, ALL);
    assert.equal((await service.send('GET', `/o/${addressOf(REMOVED)}`)).status, 404);
    await runTask(service, 'repair');
    await assertServed(service, ALL);
  }
  // Every lease has expired: the pins are all that keeps an object.
  const flags = [...FLAGS.replicated, ...COLD, '--storage.lease=1s'];
  await using service = await startService({ dir: temp.path, dirs: DIRS, flags });
  assert.deepEqual(await assertUpgraded(service, lives), ids);
  await assertServed(service, ALL);
  const statusOf = async (bytes: Buffer): Promise<number> =>
    (await service.send('GET', `/o/${addressOf(bytes)}`)).status;
  // Copies that the drain made have a lease of their own.
  await eventually('all others expire', async () => {
    await runTask(service, 'compact');
    return (await Promise.all(ALL.slice(2).map(statusOf))).every((status) => status === 404);
  });
  await assertServed(service, ALL.slice(0, 2));
});

test('stripes: they are read and written anew, and a lost directory costs nothing, even if the others are swapped', async () => {
  await using temp = await tempDir();
  await unpack('striped', temp.path);
  const flags = [...FLAGS.striped, ...COLD];
  const lives = DIRS.map(() => /^active$/);
  let ids: string[] = [];
  {
    await using service = await startService({ dir: temp.path, dirs: DIRS, flags });
    ids = await assertUpgraded(service, lives);
    const { all } = await countStripes(service);
    assert.ok(all > 3);
    await assertServed(service, ALL);
    await runTask(service, 'repair');
    assert.deepEqual(await countStripes(service), { named: 0, all });
  }
  await rename(join(temp.path, 'a'), join(temp.path, 'moving'));
  await rename(join(temp.path, 'b'), join(temp.path, 'a'));
  await rename(join(temp.path, 'moving'), join(temp.path, 'b'));
  await using service = await startService({ dir: temp.path, dirs: DIRS, flags });
  const swapped = await volumesOf(service);
  assert.deepEqual(
    swapped.map((volume) => volume.id),
    [ids[1], ids[0], ids[2], ids[3]],
  );
  assert.ok(swapped.every((volume) => volume.life === 'active' && volume.is_current && volume.reason === ''));
  await removeDir(join(temp.path, 'c'));
  await eventually('it counts as lost', async () => (await volumesOf(service)).some((each) => each.life === 'lost'));
  await assertServed(service, ALL);
});

test('stripes of the previous version protect their contents while a directory is away at the first start', async () => {
  for (const away of DIRS) {
    await using temp = await tempDir();
    await unpack('striped', temp.path);
    const dirs = DIRS.filter((name) => name !== away);
    await using service = await startService({ dir: temp.path, dirs, flags: [...FLAGS.striped, ...COLD] });
    await assertServed(service, ALL);
    const lost = (await volumesOf(service)).find((volume) => volume.life === 'lost');
    assert.match(lost.name, new RegExp(`/${away}$`));
    await service.reload(DIRS);
    await eventually('it is back', async () => (await volumesOf(service)).every((volume) => volume.is_current));
    const back = await volumesOf(service);
    assert.equal(back.length, 4);
    assert.equal(back.find((volume) => volume.name === join(temp.path, away))?.id, lost.id);
    await assertServed(service, ALL);
  }
});
