/** A directory that is lost, full, empty, stale or new does not affect clients. */
import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { cp, mkdir, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { addressBytes, type Address } from '@ron/proto';
import { bytesOf, eventually, KIB, MIB, tempDir, mountTmpfs, NO_MOUNT, removeDir } from '@ron/testkit';
import { addressOf, assertRefusal, type Json } from '@ron/testkit/service';
import { assertServed } from './support.ts';
import { decide, fill, nameOf, reasonIn, repaired, started, volume, RF2, slowDirectory } from './volumes.ts';

const { signal } = new AbortController();

test('a write is acknowledged with the configured number of copies, and reports it', async () => {
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

test('a deleted directory is reported, its records are repaired, and an empty one in its place is filled', async () => {
  await using service = await started(['a', 'b', 'c']);
  const objects = await fill(service, 12);
  await removeDir(join(service.dir, 'b'));
  await assertServed(service, objects);
  await eventually('it counts as lost', async () => (await volume(service, 'b')).life === 'lost');
  const ready = JSON.parse((await service.send('GET', '/readyz')).text);
  assert.deepEqual(ready.degraded, ['durability']);
  const gate = ready.gates.find((each: Json) => each.gate === 'durability');
  assert.ok(gate.reason.includes(`${join(service.dir, 'b')} is gone`), gate.reason);
  await repaired(service);
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
  await eventually('it is current', async () => (await volume(service, 'b')).is_current);
  assert.deepEqual(JSON.parse((await service.send('GET', '/readyz')).text).degraded, []);
  await assertServed(service, objects);
});

test('a directory that returns does not restore removed objects, nor lose those that only it has', async () => {
  await using service = await started(['a', 'b', 'c']);
  const objects = await fill(service, 12);
  const [gone, ...kept] = objects as [Buffer, ...Buffer[]];
  await rename(join(service.dir, 'b'), join(service.dir, 'away'));
  await eventually('it counts as lost', async () => (await volume(service, 'b')).life === 'lost');
  await service.storage.engine.store.remove(addressOf(gone) as Address, signal);
  await rename(join(service.dir, 'away'), join(service.dir, 'b'));
  await eventually('it is back', async () => (await volume(service, 'b')).life === 'active');
  await eventually('it is current', async () => (await volume(service, 'b')).is_current);
  assertRefusal(await service.send('GET', `/o/${addressOf(gone)}`), 404, 'not_found');
  await assertServed(service, kept);
  await repaired(service);
});

test('an abandoned directory stays closed after a restart, until it is restored', async () => {
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
  await repaired(service);
  await assertServed(service, objects);
  assert.equal((await decide(service, 'restore', 'b')).status, 200);
  assert.equal((await volume(service, 'b')).life, 'active');
  for (const name of ['a', 'b']) assert.equal((await decide(service, 'lose', name)).status, 200);
  assertRefusal(await decide(service, 'lose', 'c'), 409, 'conflict');
});

test('a restart does not make a volume of an empty directory in the place of a stale one', async () => {
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

test('a directory restored from a backup does not restore removed objects', async () => {
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
  await removeDir(join(temp.path, 'b'));
  await rename(join(temp.path, 'backup'), join(temp.path, 'b'));
  await using service = await started(['a', 'b', 'c'], { dir: temp.path });
  assertRefusal(await service.send('GET', `/o/${addressOf(gone)}`), 404, 'not_found');
  await repaired(service);
  assert.equal((await volume(service, 'b')).is_current, true);
  assertRefusal(await service.send('GET', `/o/${addressOf(gone)}`), 404, 'not_found');
  await assertServed(service, kept);
});

test('diverged directories are reported, and reconciled once the operator adopts them', async () => {
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
  await eventually('it is reported', async () => (await apart()) !== undefined);
  assert.match(reasonIn((await service.send('GET', '/readyz')).text), /used apart/);
  const { name } = await apart();
  await service.ask('POST', `/admin/volumes/restore?volume=${encodeURIComponent(name)}`);
  await repaired(service);
  assert.equal(await apart(), undefined);
  assert.deepEqual(JSON.parse((await service.send('GET', '/readyz')).text).degraded, []);
  await assertServed(service, objects);
});

test('objects with missing parts are counted before a client reads them', async () => {
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
    // An object without any record cannot be counted.
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

test('a start without one of the directories serves from the others, and does not create it', async () => {
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
  await eventually('it is open again', async () => (await volume(service, 'c')).life === 'active');
  await repaired(service);
});

test('a full or read-only disk is reported, and writes go to the others', async (t) => {
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
  await eventually('it is reported', async () => /a\/data: the disk is full/.test(await reasonOf()));
  assert.equal((await service.send('GET', '/readyz?lane=put')).status, 200);
  await assertServed(service, objects);
  await rm(join(disk, 'ballast'));
  await eventually('there is room again', async () => (await reasonOf()) === '');
  if (!mount.remount('ro')) return;
  objects.push(...(await fill(service, 6, 200)));
  await assertServed(service, objects);
  mount.remount('rw');
});

test('with too few directories left a write is refused, and reads continue', async () => {
  await using service = await started(['a', 'b']);
  const objects = await fill(service, 4);
  await removeDir(join(service.dir, 'a'));
  await eventually('it counts as lost', async () => (await volume(service, 'a')).life === 'lost');
  const bytes = bytesOf(5000, 50);
  const refused = await service.send('PUT', `/o/${addressOf(bytes)}`, { body: bytes, headers: await service.allow() });
  assertRefusal(refused, 503, 'not_ready');
  assert.equal((await service.send('GET', '/readyz?lane=put')).status, 503);
  await assertServed(service, objects);
});

test('concurrent writes that share most of their chunks are all acknowledged', async () => {
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

test('a directory that is slow to open delays neither requests nor the detection of other losses, and joins in the end', async () => {
  await using temp = await tempDir();
  const slow = join(temp.path, 'c');
  const { fs, disk } = slowDirectory(slow);
  await using service = await started(['a', 'b', 'c', 'd'], { dir: temp.path, fs });
  const objects = await fill(service, 6);
  await rename(slow, join(temp.path, 'away'));
  await eventually('it counts as lost', async () => (await volume(service, 'c')).life === 'lost');
  disk.isSlow = true;
  disk.calls = 0;
  await rename(join(temp.path, 'away'), slow);
  await eventually('it is being opened', () => disk.calls > 0);
  await removeDir(join(temp.path, 'a'));
  await service.storage.engine.volumes.probe(signal);
  assert.equal((await volume(service, 'a')).life, 'lost');
  assert.match((await volume(service, 'c')).reason, /is being opened/);
  await assertServed(service, objects);
  disk.isSlow = false;
  await eventually('it joins', async () => (await volume(service, 'c')).life === 'active');
});

test('the last decision about a directory counts, even if it is made while the directory is opened', async () => {
  await using temp = await tempDir();
  const slow = join(temp.path, 'c');
  const { fs, disk } = slowDirectory(slow);
  await using service = await started(['a', 'b', 'c'], { dir: temp.path, fs });
  const { volumes } = service.storage.engine;
  const slot = volumes.slot(slow);
  const reappear = async (): Promise<void> => {
    await rename(slow, join(temp.path, 'away'));
    await eventually('it counts as lost', async () => (await volume(service, 'c')).life === 'lost');
    Object.assign(disk, { isSlow: true, calls: 0 });
    await rename(join(temp.path, 'away'), slow);
    await eventually('it is being opened', () => disk.calls > 0);
    assert.equal((await decide(service, 'lose', 'c')).status, 200);
  };
  await reappear();
  disk.isSlow = false;
  await eventually('the opening has ended', () => slot.opening === undefined);
  await volumes.probe(signal);
  assert.equal(slot.lifecycle.state.kind, 'abandoned');
  assert.match((await volume(service, 'c')).reason, /c: it was given up/);
  assert.equal((await decide(service, 'restore', 'c')).status, 200);
  assert.equal((await volume(service, 'c')).life, 'active');

  await reappear();
  const restored = decide(service, 'restore', 'c');
  disk.isSlow = false;
  assert.equal((await restored).status, 200);
  assert.equal((await volume(service, 'c')).life, 'active');
});
