/** Stripes replace copies, and scrub finds and repairs damaged records before a client reads them. */
import assert from 'node:assert/strict';
import { readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { bytesOf, eventually, KIB, removeDir } from '@ron/testkit';
import type { Json } from '@ron/testkit/service';
import { assertServed, runTask, startService } from './support.ts';

const COLD = ['--storage.cache_bytes=1MiB', '--storage.fast_path=false', '--durability.repair_interval=1h'];

/** Changes one byte of a record that begins with `bytes`; false when this directory does not hold it. */
async function flip(dir: string, bytes: Buffer): Promise<boolean> {
  for (const name of await readdir(join(dir, 'segments'))) {
    const path = join(dir, 'segments', name);
    const segment = await readFile(path);
    const at = segment.indexOf(bytes.subarray(0, 64));
    if (at < 0) continue;
    segment[at + 10]! ^= 1;
    await writeFile(path, segment, { flag: 'r+' });
    return true;
  }
  return false;
}

test('with stripes of 2+1 and no copies, a lost directory costs nothing, and its shards are made again', async () => {
  const ec = ['--durability.ec=true', '--durability.ec_data_shards=2', '--durability.ec_parity_shards=1'];
  const flags = [...COLD, ...ec, '--durability.replication_factor=1'];
  await using service = await startService({ dirs: ['a', 'b', 'c', 'd'], flags });
  // Some fill their stripes, some do not, and some are too small for any.
  const sizes = [4, 4, 4, 4, 3, 3, 2, 5].map((chunks) => chunks * 64 * KIB).concat(0, 1, 64 * KIB - 1, 64 * KIB);
  const objects = sizes.map((bytes, index) => bytesOf(bytes, index + 1));
  for (const bytes of objects) await service.put(bytes);
  await runTask(service, 'repair');
  const { stripes, crowded } = await service.ask('GET', '/admin/repair');
  assert.deepEqual([stripes.objects, stripes.failed, crowded], [12, 0, 0]);
  assert.ok(stripes.stripes >= 13 && stripes.lone <= 1, JSON.stringify(stripes));
  await removeDir(join(service.dir, 'b'));
  await eventually('it counts as lost', async () => {
    const { volumes } = await service.ask('GET', '/admin/volumes');
    return volumes.some((each: Json) => each.life === 'lost');
  });
  await assertServed(service, objects);
  const { results } = await runTask(service, 'repair');
  assert.ok(results.repaired > 0);
  assert.equal(await service.metric('repair_deficit_chunks'), 0);
  // Every stripe is complete again, even those whose parity was lost, so another directory may be lost.
  await removeDir(join(service.dir, 'd'));
  await eventually('it counts as lost', async () => (await service.ask('GET', '/admin/repair')).problems.length === 2);
  await assertServed(service, objects);
});

test('a byte that changed on disk is found by a scrub, counted, and made again from the other copy', async () => {
  await using service = await startService({ dirs: ['a', 'b'], flags: COLD });
  const objects = [bytesOf(200 * KIB, 1), bytesOf(5000, 2)];
  for (const bytes of objects) await service.put(bytes);
  for (const bytes of objects) assert.ok(await flip(join(service.dir, 'a'), bytes));
  const { volumes } = await runTask(service, 'scrub');
  const bad = volumes.map((each: Json) => each.bad);
  assert.deepEqual(bad, [2, 0]);
  assert.ok((await service.metric('integrity_fail_total{reason="checksum"}')) >= 2);
  await runTask(service, 'repair');
  const again = await runTask(service, 'scrub');
  assert.deepEqual(
    again.volumes.map((each: Json) => each.bad),
    [0, 0],
  );
  // Only the repaired copy is left.
  await removeDir(join(service.dir, 'b'));
  await eventually('it counts as lost', async () => (await service.ask('GET', '/admin/repair')).problems.length === 1);
  await assertServed(service, objects);
});

test('a read of a damaged copy gets the other one within the request, and the copy is repaired', async () => {
  await using service = await startService({ dirs: ['a', 'b'], flags: COLD });
  const bytes = bytesOf(200 * KIB, 3);
  await service.put(bytes);
  // Which copy is read first depends on the chunk: of four, some are read from here.
  for (let chunk = 0; chunk < 4; chunk++) {
    assert.ok(await flip(join(service.dir, 'a'), bytes.subarray(chunk * 64 * KIB)));
  }
  await assertServed(service, [bytes]);
  await eventually(
    'the damaged copy is repaired',
    async () => (await service.metric('repairs_total{result="repaired"}')) > 0,
  );
  await runTask(service, 'scrub');
  await runTask(service, 'repair');
  const { volumes } = await runTask(service, 'scrub');
  assert.deepEqual(
    volumes.map((each: Json) => each.bad),
    [0, 0],
  );
});

test('one directory is scrubbed as well', async () => {
  await using service = await startService({ flags: COLD });
  const bytes = bytesOf(200 * KIB, 4);
  await service.put(bytes);
  assert.ok(await flip(service.dir, bytes));
  const { volumes } = await runTask(service, 'scrub');
  assert.deepEqual(
    volumes.map((each: Json) => each.bad),
    [1],
  );
});

test('stripes that cannot be made now are tried again, and the service goes on', async () => {
  const ec = ['--durability.ec=true', '--durability.ec_data_shards=2', '--durability.ec_parity_shards=1'];
  const flags = ['--storage.fast_path=false', '--durability.repair_interval=1s', ...ec];
  await using service = await startService({ dirs: ['a', 'b', 'c'], flags });
  const { striper } = service.storage.maintenance;
  const run = striper!.run.bind(striper);
  let failures = 0;
  striper!.run = (signal) => (++failures <= 3 ? Promise.reject(new Error('EIO')) : run(signal));
  const bytes = bytesOf(4 * 64 * KIB, 1);
  await service.put(bytes);
  await eventually('stripes are made after all', async () => {
    const { stripes } = await service.ask('GET', '/admin/repair');
    return failures > 3 && stripes.objects === 1;
  });
  assert.ok(service.lines.some((line) => line.includes('failed to make stripes')));
  await assertServed(service, [bytes]);
});

test('a damaged copy of the journal of an upload is found by a scrub and written anew', async () => {
  await using service = await startService({
    dirs: ['a', 'b', 'c'],
    flags: [...COLD, '--durability.replication_factor=2'],
  });
  const headers = { 'Tus-Resumable': '1.0.0', ...(await service.allow()) };
  const created = await service.send('POST', '/uploads', { headers: { ...headers, 'Upload-Length': '300000' } });
  const path = created.headers.location!;
  const part = { 'Upload-Offset': '0', 'Content-Type': 'application/offset+octet-stream' };
  const sent = await service.send('PATCH', path, { headers: { ...headers, ...part }, body: bytesOf(200_000, 1) });
  assert.equal(sent.status, 204, sent.text);
  const journals: string[] = [];
  for (const name of ['a', 'b', 'c']) {
    const dir = join(service.dir, name, 'uploads');
    journals.push(...(await readdir(dir)).map((file) => join(dir, file)));
  }
  assert.equal(journals.length, 2);
  const whole = await readFile(journals[0]!);
  const damaged = Buffer.from(whole);
  damaged[20]! ^= 1;
  await writeFile(journals[0]!, damaged);
  const { volumes } = await runTask(service, 'scrub');
  assert.equal(
    volumes.reduce((sum: number, each: Json) => sum + each.bad, 0),
    1,
  );
  assert.ok((await readFile(journals[0]!)).equals(await readFile(journals[1]!)), 'both copies say the same again');
  const again = await runTask(service, 'scrub');
  assert.ok(again.volumes.every((each: Json) => each.bad === 0));
  const head = await service.send('HEAD', path, { headers });
  assert.equal(head.headers['upload-offset'], '200000');
});

test('a scrub that cannot end within its period at the configured rate is reported', async () => {
  const flags = [...COLD, '--durability.repair_pacing=64KiB/s', '--durability.scrub_interval=1m'];
  await using service = await startService({ dirs: ['a', 'b'], flags });
  // Four copies of 2 MiB are more than 64 KiB/s read in a minute, and more than a burst.
  for (let index = 0; index < 4; index++) await service.put(bytesOf(2048 * KIB, index + 1));
  await service.ask('POST', '/admin/scrub');
  const gateOf = async (): Promise<Json> => {
    const { gates } = JSON.parse((await service.send('GET', '/readyz')).text);
    return gates.find((each: Json) => each.gate === 'scrub');
  };
  await eventually('it is reported', async () => !(await gateOf()).open);
  assert.match((await gateOf()).reason, /scrub is late: .*GiB are left to read.*raise durability.repair_pacing/);
  const { scrubs } = await service.ask('GET', '/admin/volumes');
  assert.ok(scrubs.some((each: Json) => /its period ends in/.test(each.late ?? '')));
});
