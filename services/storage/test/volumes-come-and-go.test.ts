/** Several directories: one that is lost, full, empty, stale or new changes nothing for whoever reads and writes. */
import assert from 'node:assert/strict';
import { existsSync, rmSync } from 'node:fs';
import { cp, mkdir, rename, rm, statfs, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { reserveBytes } from '@ron/cas';
import { realFileSystem, type FileSystem } from '@ron/log';
import { addressBytes, type Address } from '@ron/proto';
import { bytesOf, eventually, KIB, MIB, tempDir } from '@ron/testkit';
import { addressOf, assertRefusal, type Json, type Reply } from '@ron/testkit/service';
import { mountTmpfs, NO_MOUNT } from './process.ts';
import { assertServed, startService, type ServiceInit, type TestService } from './support.ts';

const { signal } = new AbortController();
const RF2 = ['--durability.replication_factor=2', '--durability.repair_interval=1s', '--storage.cache_bytes=1MiB'];

async function started(dirs: readonly string[], init: ServiceInit = {}): Promise<TestService> {
  return await startService({ dirs, flags: [...RF2, '--storage.fast_path=false'], ...init });
}

/** Small ones and large ones. */
async function fill(service: TestService, count: number, seed = 0): Promise<Buffer[]> {
  const objects = Array.from({ length: count }, (_, index) =>
    bytesOf(index % 3 === 0 ? 300 * KIB : 5000, seed + index + 1),
  );
  for (const bytes of objects) await service.put(bytes);
  return objects;
}

/** Until an inventory shows that nothing is missing. */
async function madeWhole(service: TestService): Promise<void> {
  const { id } = await service.ask('POST', '/admin/repair');
  const state = async (): Promise<string> => (await service.ask('GET', `/admin/tasks/${id}`)).state;
  await eventually('the repair ends', async () => (await state()) !== 'running');
  assert.equal(await state(), 'done');
}

async function volume(service: TestService, name: string): Promise<Json> {
  const { volumes } = await service.ask('GET', '/admin/volumes');
  return volumes.find((each: { name: string }) => each.name === join(service.dir, name));
}

const nameOf = (service: TestService, name: string): string => encodeURIComponent(join(service.dir, name));

test('a write is acknowledged with as many copies as were asked for, and says so', async () => {
  await using service = await started(['a', 'b@domain=other', 'c']);
  const bytes = bytesOf(200 * KIB, 1);
  const reply = await service.send('PUT', `/o/${addressOf(bytes)}`, { body: bytes, headers: await service.allow() });
  assert.equal(reply.status, 201, reply.text);
  assert.deepEqual(JSON.parse(reply.text).durability, { fsynced: true, copies: 2, target: 2 });
  assert.equal(reply.headers['ron-durability'], 'fsynced=1; copies=2; target=2');
  const { volumes } = await service.ask('GET', '/admin/volumes');
  assert.deepEqual(
    volumes.map((each: Json) => [each.name, each.domain, each.life, each.condition, each.is_current]),
    [
      [join(service.dir, 'a'), join(service.dir, 'a'), 'active', 'ok', true],
      [join(service.dir, 'b'), 'other', 'active', 'ok', true],
      [join(service.dir, 'c'), join(service.dir, 'c'), 'active', 'ok', true],
    ],
  );
  assert.equal(await service.metric('rf_target'), 2);
  assert.equal(await service.metric('storage_volume_ok{volume="' + join(service.dir, 'c') + '"}'), 1);
  assert.deepEqual(JSON.parse((await service.send('GET', '/readyz')).text).degraded, []);
});

test('a directory that is deleted is named, what it held is made again, and an empty one in its place is filled', async () => {
  await using service = await started(['a', 'b', 'c']);
  const objects = await fill(service, 12);
  await rm(join(service.dir, 'b'), { recursive: true });
  await assertServed(service, objects);
  await eventually('it counts as lost', async () => (await volume(service, 'b')).life === 'lost');
  const ready = JSON.parse((await service.send('GET', '/readyz')).text);
  assert.deepEqual(ready.degraded, ['durability']);
  const gate = ready.gates.find((each: Json) => each.gate === 'durability');
  assert.ok(gate.reason.includes(`${join(service.dir, 'b')} is gone`), gate.reason);
  await madeWhole(service);
  assert.ok((await service.metric('repairs_total{result="repaired"}')) > 0);
  assert.equal(await service.metric('rf_observed'), 2);
  assert.equal(await service.metric('repair_deficit_chunks'), 0);
  objects.push(...(await fill(service, 3, 100)));
  await assertServed(service, objects);
  // It may be the mount point of a disk that is missing.
  await mkdir(join(service.dir, 'b'));
  await new Promise((resolve) => setTimeout(resolve, 1500));
  assert.equal((await volume(service, 'b')).life, 'lost');
  await service.ask('POST', `/admin/volumes/restore?volume=${nameOf(service, 'b')}`);
  await eventually('it has heard everything', async () => (await volume(service, 'b')).is_current);
  assert.deepEqual(JSON.parse((await service.send('GET', '/readyz')).text).degraded, []);
  await assertServed(service, objects);
});

test('a directory that comes back does not bring back what was removed meanwhile, nor forget what it alone has', async () => {
  await using service = await started(['a', 'b', 'c']);
  const objects = await fill(service, 12);
  const [gone, ...kept] = objects as [Buffer, ...Buffer[]];
  await rename(join(service.dir, 'b'), join(service.dir, 'away'));
  await eventually('it counts as lost', async () => (await volume(service, 'b')).life === 'lost');
  await service.storage.engine.store.remove(addressOf(gone) as Address, signal);
  await rename(join(service.dir, 'away'), join(service.dir, 'b'));
  await eventually('it is back', async () => (await volume(service, 'b')).life === 'active');
  await eventually('it has heard everything', async () => (await volume(service, 'b')).is_current);
  assertRefusal(await service.send('GET', `/o/${addressOf(gone)}`), 404, 'not_found');
  await assertServed(service, kept);
  await madeWhole(service);
});

test('a directory is drained, and can be removed when it is empty and not before', async () => {
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
  await rm(join(service.dir, 'a'), { recursive: true });
  await assertServed(service, objects);
});

async function decide(service: TestService, verb: string, name: string): Promise<Reply> {
  return await service.send('POST', `/admin/volumes/${verb}?volume=${nameOf(service, name)}`, {
    headers: await service.allow(),
  });
}

const reasonIn = (text: string): string =>
  JSON.parse(text).gates.find((each: Json) => each.gate === 'durability').reason ?? '';

test('whether the others have room for a drain is answered also when one of them has just gone', async () => {
  await using service = await started(['a', 'b', 'c', 'd']);
  await fill(service, 3);
  // At once: who looks after directories has hardly noticed when the drain looks for room.
  rmSync(join(service.dir, 'b'), { recursive: true });
  await service.ask('POST', `/admin/volumes/drain?volume=${nameOf(service, 'a')}`);
  assert.match((await volume(service, 'a')).life, /^drain/);
});

test('a drain goes on after a restart, and undrain ends it', async () => {
  await using temp = await tempDir();
  // No plan comes by itself: nothing is moved meanwhile.
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

test('what was given up stays so after a restart, until somebody takes it back', async () => {
  await using temp = await tempDir();
  let objects: Buffer[];
  {
    await using service = await started(['a', 'b', 'c'], { dir: temp.path });
    objects = await fill(service, 6);
    assert.equal((await decide(service, 'lose', 'b')).status, 200);
    assert.equal((await volume(service, 'b')).life, 'lost');
  }
  await using service = await started(['a', 'b', 'c'], { dir: temp.path });
  assert.equal((await volume(service, 'b')).life, 'lost');
  assert.match(reasonIn((await service.send('GET', '/readyz')).text), /b: it was given up/);
  await madeWhole(service);
  await assertServed(service, objects);
  assert.equal((await decide(service, 'restore', 'b')).status, 200);
  assert.equal((await volume(service, 'b')).life, 'active');
  for (const name of ['a', 'b']) assert.equal((await decide(service, 'lose', name)).status, 200);
  assertRefusal(await decide(service, 'lose', 'c'), 409, 'conflict');
});

test('a restart without a directory in the configuration empties it first, as a reload does', async () => {
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
    await eventually('it is let go', async () => (await volume(service, 'a')) === undefined);
  }
  await rm(join(temp.path, 'a'), { recursive: true });
  await using service = await started(['b'], init);
  assert.ok(service.storage.engine.volumes.isSingle);
  await assertServed(service, objects);
});

test('an empty directory in the place of one that missed something is not made a volume by a restart', async () => {
  await using temp = await tempDir();
  {
    await using service = await started(['a', 'b', 'c'], { dir: temp.path });
    const [gone] = (await fill(service, 6)) as [Buffer];
    await rename(join(temp.path, 'c'), join(temp.path, 'away'));
    await eventually('it counts as lost', async () => (await volume(service, 'c')).life === 'lost');
    await service.storage.engine.store.remove(addressOf(gone) as Address, signal);
  }
  await mkdir(join(temp.path, 'c'));
  await using service = await started(['a', 'b', 'c'], { dir: temp.path });
  assert.equal((await volume(service, 'c')).life, 'lost');
  assert.ok(!existsSync(join(temp.path, 'c', 'segments')), 'its disk may not be mounted');
});

test('a directory that is put back from a backup does not bring back what was removed since', async () => {
  await using temp = await tempDir();
  let kept: Buffer[];
  let gone: Buffer;
  {
    await using service = await started(['a', 'b', 'c'], { dir: temp.path });
    const objects = await fill(service, 8);
    const { volume: b } = service.storage.engine.volumes.set.member(join(temp.path, 'b'));
    gone = objects.find((bytes) => b.has('object', addressBytes(addressOf(bytes) as Address)))!;
    kept = objects.filter((bytes) => bytes !== gone);
    await cp(join(temp.path, 'b'), join(temp.path, 'backup'), { recursive: true });
    await service.storage.engine.store.remove(addressOf(gone) as Address, signal);
    kept.push(...(await fill(service, 4, 100)));
  }
  await rm(join(temp.path, 'b'), { recursive: true });
  await rename(join(temp.path, 'backup'), join(temp.path, 'b'));
  await using service = await started(['a', 'b', 'c'], { dir: temp.path });
  assertRefusal(await service.send('GET', `/o/${addressOf(gone)}`), 404, 'not_found');
  await madeWhole(service);
  assert.equal((await volume(service, 'b')).is_current, true);
  assertRefusal(await service.send('GET', `/o/${addressOf(gone)}`), 404, 'not_found');
  await assertServed(service, kept);
});

test('directories that were used apart are named, and brought together when somebody says so', async () => {
  await using temp = await tempDir();
  const one = { dir: temp.path, flags: ['--durability.replication_factor=2', '--durability.write_min=1'] };
  await (await started(['a', 'b'], one))[Symbol.asyncDispose]();
  const objects: Buffer[] = [];
  for (const name of ['a', 'b']) {
    await rename(join(temp.path, name), join(temp.path, 'away'));
    const service = await started(['a', 'b'], one);
    objects.push(...(await fill(service, 2, objects.length * 100)));
    await service[Symbol.asyncDispose]();
    await rename(join(temp.path, 'away'), join(temp.path, name));
  }
  await using service = await started(['a', 'b'], { dir: temp.path });
  await assertServed(service, objects);
  const apart = async (): Promise<Json> =>
    (await service.ask('GET', '/admin/volumes')).volumes.find((each: Json) => /used apart/.test(each.reason));
  await eventually('it is named', async () => (await apart()) !== undefined);
  assert.match(reasonIn((await service.send('GET', '/readyz')).text), /used apart/);
  const { name } = await apart();
  await service.ask('POST', `/admin/volumes/restore?volume=${encodeURIComponent(name)}`);
  await madeWhole(service);
  assert.equal(await apart(), undefined);
  assert.deepEqual(JSON.parse((await service.send('GET', '/readyz')).text).degraded, []);
  await assertServed(service, objects);
});

test('what is lost beyond its copies shows in a figure before somebody reads it', async () => {
  await using service = await started(['a', 'b'], { flags: [...RF2.slice(1), '--durability.replication_factor=1'] });
  const objects = await fill(service, 60);
  const compacted = async (): Promise<void> => {
    const { id } = await service.ask('POST', '/admin/compact');
    await eventually('it ends', async () => (await service.ask('GET', `/admin/tasks/${id}`)).state !== 'running');
  };
  await compacted();
  assert.equal((await service.ask('GET', '/admin/repair')).broken, 0);
  assert.equal((await decide(service, 'lose', 'a')).status, 200);
  await compacted();
  const { broken } = await service.ask('GET', '/admin/repair');
  let unreadable = 0;
  for (const bytes of objects) {
    // What nobody ever heard of cannot be counted.
    if (!service.storage.engine.store.has(addressOf(bytes) as Address)) continue;
    const status = await service.send('GET', `/o/${addressOf(bytes)}`).then(
      (reply) => reply.status,
      () => undefined,
    );
    if (status !== 200) unreadable += 1;
  }
  assert.ok(unreadable > 0, 'half of the chunks are gone');
  assert.equal(broken, unreadable);
  assert.equal(await service.metric('storage_broken_objects'), broken);
});

test('weight and domain follow a reload', async () => {
  await using service = await started(['a@weight=1', 'b@weight=1', 'c@weight=1']);
  await service.reload(['a@weight=1', 'b@weight=7@domain=shelf', 'c@weight=1']);
  const { weight, domain } = await volume(service, 'b');
  assert.deepEqual([weight, domain], [7, 'shelf']);
});

test('a reload takes in a new directory, and empties one that is no longer named before it lets go of it', async () => {
  await using service = await started(['a', 'b']);
  const objects = await fill(service, 9);
  await service.reload(['b', 'c']);
  assert.equal((await volume(service, 'c')).life, 'active');
  await eventually('the old one is let go', async () => (await volume(service, 'a')) === undefined);
  await rm(join(service.dir, 'a'), { recursive: true });
  await assertServed(service, objects);
  await madeWhole(service);
});

test('the byte rate of repair follows a reload', async () => {
  await using service = await started(['a', 'b']);
  assert.equal((await service.ask('GET', '/admin/repair')).rate_bytes_per_s, 50 * MIB);
  await service.reload(['a', 'b'], [...RF2, '--durability.repair_pacing=3MiB/s']);
  assert.equal((await service.ask('GET', '/admin/repair')).rate_bytes_per_s, 3 * MIB);
});

test('a start without one of the directories serves from the others, and does not make it anew', async () => {
  await using temp = await tempDir();
  let objects: Buffer[];
  {
    await using service = await started(['a', 'b', 'c'], { dir: temp.path });
    objects = await fill(service, 6);
  }
  await rename(join(temp.path, 'c'), join(temp.path, 'away'));
  await using service = await started(['a', 'b', 'c'], { dir: temp.path });
  await assertServed(service, objects);
  assert.equal((await volume(service, 'c')).life, 'lost');
  assert.ok(!existsSync(join(temp.path, 'c')));
  await rename(join(temp.path, 'away'), join(temp.path, 'c'));
  await eventually('it is taken back', async () => (await volume(service, 'c')).life === 'active');
  await madeWhole(service);
});

test('a full or read-only disk is named, and writes go to the others', async (t) => {
  await using temp = await tempDir();
  const disk = join(temp.path, 'a');
  await mkdir(disk);
  using mount = mountTmpfs(disk, '8m');
  if (mount === undefined) return t.skip(NO_MOUNT);
  const flags = [...RF2, '--storage.segment_bytes=4MiB'];
  const dirs = ['a/data@weight=1', 'b@weight=1', 'c@weight=1'];
  await using service = await started(dirs, { dir: temp.path, flags });
  const objects = await fill(service, 6);
  await writeFile(join(disk, 'ballast'), Buffer.alloc(8 * MIB)).catch(() => undefined);
  objects.push(...(await fill(service, 6, 100)));
  const reasonOf = async (): Promise<string> => {
    const { gates } = JSON.parse((await service.send('GET', '/readyz')).text);
    return gates.find((each: Json) => each.gate === 'durability').reason ?? '';
  };
  await eventually('it is named', async () => /a\/data: the disk is full/.test(await reasonOf()));
  assert.equal((await service.send('GET', '/readyz?lane=put')).status, 200);
  await assertServed(service, objects);
  await rm(join(disk, 'ballast'));
  await eventually('there is room again', async () => (await reasonOf()) === '');
  if (!mount.remount('ro')) return;
  objects.push(...(await fill(service, 6, 200)));
  await assertServed(service, objects);
  mount.remount('rw');
});

test('with too few directories left a write is refused, and reads go on', async () => {
  await using service = await started(['a', 'b']);
  const objects = await fill(service, 4);
  await rm(join(service.dir, 'a'), { recursive: true });
  await eventually('it counts as lost', async () => (await volume(service, 'a')).life === 'lost');
  const bytes = bytesOf(5000, 50);
  const refused = await service.send('PUT', `/o/${addressOf(bytes)}`, { body: bytes, headers: await service.allow() });
  assertRefusal(refused, 503, 'not_ready');
  assert.equal((await service.send('GET', '/readyz?lane=put')).status, 503);
  await assertServed(service, objects);
});

test('writes at the same time that share most of their chunks are all acknowledged', async () => {
  await using service = await started(['a', 'b']);
  const shared = bytesOf(192 * KIB, 1);
  for (let round = 0; round < 4; round++) {
    const bodies = Array.from({ length: 16 }, (_, index) =>
      Buffer.concat([bytesOf(64 * KIB, 100 + 16 * round + index), shared, bytesOf(1000, 900 + round)]),
    );
    await Promise.all(bodies.map((bytes) => service.put(bytes)));
    await assertServed(service, bodies);
  }
});

test('one directory has no set in between, and nothing to decide about', async () => {
  await using service = await startService();
  assert.equal(service.storage.engine.store.volume, service.storage.engine.volumes.set.members[0]!.volume);
  await fill(service, 3);
  const refused = await service.send('POST', `/admin/volumes/lose?volume=${encodeURIComponent(service.dir)}`, {
    headers: await service.allow(),
  });
  assertRefusal(refused, 409, 'conflict');
});

test('a drain is refused while the others lack room for it, and says how much; with room it begins', async (t) => {
  await using temp = await tempDir();
  const disk = join(temp.path, 'small');
  await mkdir(disk);
  using mount = mountTmpfs(disk, '16m');
  if (mount === undefined) return t.skip(NO_MOUNT);
  // Both others lie on the small disk: they share its room, which counts once.
  await using service = await started(['a@weight=1', 'small/b@weight=1', 'small/c@weight=1'], {
    dir: temp.path,
    flags: ['--durability.replication_factor=2', '--durability.repair_interval=1h', '--storage.segment_bytes=4MiB'],
  });
  for (let key = 1; key <= 6; key++) await service.put(bytesOf(700 * KIB, key));
  const { used_bytes } = await volume(service, 'a');
  const ballast = join(disk, 'ballast');
  // As much is left as half of what is to be moved: together twice that, if each were asked alone.
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
    /2 copies lie in 2 domains, 1 would be left/,
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

test('a directory that takes long to open holds up nobody: others are missed, reads and writes go on, and it joins in the end', async () => {
  await using temp = await tempDir();
  const slow = join(temp.path, 'c');
  // Each call alone is within what a disk may take.
  const disk = { isSlow: false, calls: 0 };
  const slowly = async (path: string): Promise<void> => {
    if (!path.startsWith(slow)) return;
    disk.calls += 1;
    if (disk.isSlow) await new Promise((resolve) => setTimeout(resolve, 1500));
  };
  const fs: FileSystem = Object.assign(Object.create(realFileSystem) as FileSystem, {
    makeDir: (dir: string) => slowly(dir).then(() => realFileSystem.makeDir(dir)),
    list: (dir: string) => slowly(dir).then(() => realFileSystem.list(dir)),
    create: (path: string) => slowly(path).then(() => realFileSystem.create(path)),
    open: (path: string, access: 'read' | 'write') => slowly(path).then(() => realFileSystem.open(path, access)),
    identity: (path: string) => slowly(path).then(() => realFileSystem.identity!(path)),
  });
  await using service = await started(['a', 'b', 'c', 'd'], { dir: temp.path, fs });
  const objects = await fill(service, 6);
  await rename(slow, join(temp.path, 'away'));
  await eventually('it counts as lost', async () => (await volume(service, 'c')).life === 'lost');
  disk.isSlow = true;
  disk.calls = 0;
  await rename(join(temp.path, 'away'), slow);
  await eventually('it is being opened', () => disk.calls > 0);
  await rm(join(temp.path, 'a'), { recursive: true });
  await service.storage.engine.volumes.look(signal);
  assert.equal((await volume(service, 'a')).life, 'lost');
  assert.match((await volume(service, 'c')).reason, /is being opened/);
  await assertServed(service, objects);
  disk.isSlow = false;
  await eventually('it joins', async () => (await volume(service, 'c')).life === 'active');
});
