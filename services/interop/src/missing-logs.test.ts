/** Lost directories and segments of the spool and the receipts are reported, at every start until the operator accepts it. */
import assert from 'node:assert/strict';
import { cp, mkdir, readdir, readFile, rename, rm, truncate, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { NEVER } from '@ron/kernel';
import { realFileSystem, type FileSystem } from '@ron/log';
import { CrashFileSystem, FaultyDisk } from '@ron/log/testing';
import { eventually, tempDirFor } from '@ron/testkit';
import { MissingLogs } from './missing-logs.ts';
import type { Receipts } from './receipts/receipts.ts';
import { openTest, receiptOf } from './receipts/testing/receipts.ts';
import type { Spool } from './spool/spool.ts';
import { deliveryOf, openSpool, takeAll } from './spool/testing/make.ts';

interface Started {
  readonly missing: MissingLogs;
  readonly reported: readonly string[];
  readonly warnings: readonly string[];
}

/** Before the logs are opened. */
async function opened(dir: string, fs: FileSystem): Promise<Started> {
  const reported: string[] = [];
  const warnings: string[] = [];
  const missing = await MissingLogs.open({
    dir,
    fs,
    onMissing: (problem) => void reported.push(problem),
    warn: (message) => void warnings.push(message),
  });
  return { missing, reported, warnings };
}

/** As a start does it: the logs create their directories. */
async function start(dir: string, fs: FileSystem = realFileSystem): Promise<Started> {
  const started = await opened(dir, fs);
  for (const log of ['spool', 'receipts']) await mkdir(join(dir, log, 'segments'), { recursive: true });
  await started.missing.record();
  return started;
}

test('the first start and a restart report nothing', async (t) => {
  const dir = tempDirFor(t);
  for (let at = 0; at < 2; at++) {
    const { missing, reported } = await start(dir);
    assert.deepEqual([reported, missing.problem('spool'), missing.problem('receipts')], [[], undefined, undefined]);
  }
});

for (const [log, other] of [
  ['spool', 'receipts'],
  ['receipts', 'spool'],
] as const) {
  test(`a lost directory ${log} is reported at each start, until the operator deletes the file`, async (t) => {
    const dir = tempDirFor(t);
    await start(dir);
    await rename(join(dir, log), join(dir, 'away'));
    for (let at = 0; at < 2; at++) {
      const { missing, reported } = await start(dir);
      assert.match(missing.problem(log)!, new RegExp(`^the directory ${log} was missing at a start`));
      assert.equal(missing.problem(other), undefined);
      assert.deepEqual(reported, [missing.problem(log)]);
    }
    await rm(join(dir, log), { recursive: true });
    await rename(join(dir, 'away'), join(dir, log));
    await rm(join(dir, 'logs'));
    assert.deepEqual((await start(dir)).reported, []);
    assert.deepEqual((await start(dir)).reported, []);
  });
}

test('a crash after the directory was created again hides nothing', async (t) => {
  const dir = tempDirFor(t);
  await start(dir);
  await rm(join(dir, 'spool'), { recursive: true });
  await MissingLogs.open({ dir, fs: realFileSystem, onMissing: () => undefined, warn: () => undefined });
  await mkdir(join(dir, 'spool', 'segments'), { recursive: true });
  const { reported } = await start(dir);
  assert.equal(reported.length, 1);
});

test('an emptied directory is a lost one', async (t) => {
  const dir = tempDirFor(t);
  await start(dir);
  await rm(join(dir, 'spool', 'segments'), { recursive: true });
  assert.equal((await start(dir)).reported.length, 1);
});

test('a disk that cannot be written does not fail the start', async (t) => {
  const dir = tempDirFor(t);
  const disk = new FaultyDisk();
  disk.fail('logs', 'ENOSPC');
  const { reported, warnings } = await start(dir, disk);
  assert.deepEqual([reported, warnings.length], [[], 1]);
  assert.match(warnings[0]!, /failed to write .*logs/);
  disk.mend();
  await start(dir, disk);
  assert.equal(await readFile(join(dir, 'logs'), 'utf8'), 'spool kept\nreceipts kept\n');
  assert.deepEqual((await readdir(dir)).toSorted(), ['logs', 'receipts', 'spool']);
});

/** A disk on which the next `count` reads of the file `logs` fail. */
function unreadable(count: number): FileSystem {
  let left = count;
  const open: FileSystem['open'] = async (path, access) => {
    const file = await realFileSystem.open(path, access);
    if (!path.endsWith('/logs')) return file;
    const read: typeof file.read = async (...at) => {
      if (left-- > 0) throw Object.assign(new Error('EIO'), { code: 'EIO' });
      return await file.read(...at);
    };
    return { ...file, read, size: () => file.size(), close: () => file.close() };
  };
  return { ...realFileSystem, open };
}

for (const failures of [1, 2, Infinity])
  test(`a start at which ${failures} reads of the file fail does not forget a loss`, async (t) => {
    const dir = tempDirFor(t);
    await start(dir);
    await rm(join(dir, 'spool'), { recursive: true });
    await start(dir);
    const before = await readFile(join(dir, 'logs'), 'utf8');
    await start(dir, unreadable(failures));
    assert.equal(await readFile(join(dir, 'logs'), 'utf8'), before);
    assert.equal((await start(dir)).reported.length, 1);
  });

test('a directory that is lost while the file cannot be read is reported, and recorded if a later read succeeds', async (t) => {
  const dir = tempDirFor(t);
  await start(dir);
  await rm(join(dir, 'receipts'), { recursive: true });
  const { reported, missing } = await start(dir, unreadable(1));
  assert.deepEqual(reported, [missing.problem('receipts')]);
  assert.equal((await start(dir)).reported.length, 1);
});

/** Segments of two deliveries. */
const LIMITS = { bytes_max: 64 * 1024, segment_bytes: 2048 };
const DELIVERY_BYTES = 400;

interface Running extends Started {
  readonly spool: Spool;
  readonly receipts: Receipts;
  /** As the service stops: the logs first. */
  readonly stop: () => Promise<void>;
}

/** With the logs, as the service opens them. */
async function run(dir: string, fs: FileSystem = realFileSystem): Promise<Running> {
  const started = await opened(dir, fs);
  const { missing } = started;
  const { spool: ofSpool, receipts: ofReceipts } = missing.extents;
  const { spool } = await openSpool({ dir: join(dir, 'spool'), fs, extent: ofSpool, ...LIMITS });
  const { receipts } = await openTest(fs, { dir: join(dir, 'receipts'), extent: ofReceipts });
  await missing.record();
  const stop = async (): Promise<void> => {
    await receipts[Symbol.asyncDispose]();
    await spool.close();
    await missing[Symbol.asyncDispose]();
  };
  return { ...started, spool, receipts, stop };
}

async function accept({ spool, receipts }: Running, first: number, count: number): Promise<void> {
  for (let n = first; n < first + count; n++) {
    assert.notEqual(await spool.append(deliveryOf(n, 'p', DELIVERY_BYTES), NEVER), 'full');
    await receipts.append([receiptOf(n)], NEVER);
  }
}

/** A stopped service with deliveries and receipts. */
async function stopped(dir: string, first: number, count: number): Promise<void> {
  const running = await run(dir);
  await accept(running, first, count);
  await running.stop();
}

/** The problems that a start reports. */
async function restart(dir: string, fs?: FileSystem): Promise<readonly string[]> {
  const { reported, stop } = await run(dir, fs);
  await stop();
  return reported;
}

async function segmentsOf(dir: string, log: string): Promise<string[]> {
  const segments = join(dir, log, 'segments');
  return (await readdir(segments)).toSorted().map((name) => join(segments, name));
}

test('a lost segment is reported at each start, until the operator deletes the file', async (t) => {
  const dir = tempDirFor(t);
  await stopped(dir, 1, 6);
  assert.deepEqual(await restart(dir), []);
  const [, second] = await segmentsOf(dir, 'spool');
  await rm(second!);
  for (let at = 0; at < 3; at++) {
    const { missing, reported, stop } = await run(dir);
    assert.match(missing.problem('spool')!, /^a part of the directory spool was missing at a start \(no segment 2\): /);
    assert.equal(missing.problem('receipts'), undefined);
    assert.deepEqual(reported, [missing.problem('spool')]);
    await stop();
  }
  await rm(join(dir, 'logs'));
  assert.deepEqual(await restart(dir), []);
  assert.deepEqual(await restart(dir), []);
});

test('cut receipts, and an older copy of the spool, are reported together', async (t) => {
  const dir = tempDirFor(t);
  await stopped(dir, 1, 3);
  await cp(join(dir, 'spool'), join(dir, 'older'), { recursive: true });
  await stopped(dir, 4, 3);
  const [first] = await segmentsOf(dir, 'receipts');
  const { length } = await readFile(first!);
  await truncate(first!, length / 2);
  await rm(join(dir, 'spool'), { recursive: true });
  await rename(join(dir, 'older'), join(dir, 'spool'));
  const reported = await restart(dir);
  assert.equal(reported.length, 2);
  assert.match(reported[0]!, /^a part of the directory spool .*no segment 3; segment 2 has \d+ of \d+ bytes/);
  assert.match(reported[1]!, /^a part of the directory receipts .*segment 1 has \d+ of \d+ bytes/);
  assert.deepEqual(await restart(dir), reported);
});

test('the right directory is put back, the file is deleted: no loss is reported', async (t) => {
  const dir = tempDirFor(t);
  await stopped(dir, 1, 6);
  const [, second] = await segmentsOf(dir, 'spool');
  await cp(join(dir, 'spool'), join(dir, 'right'), { recursive: true });
  await rm(second!);
  await stopped(dir, 7, 6);
  await rm(join(dir, 'spool'), { recursive: true });
  await rename(join(dir, 'right'), join(dir, 'spool'));
  await rm(join(dir, 'logs'));
  assert.deepEqual(await restart(dir), []);
  assert.deepEqual(await restart(dir), []);
});

test('the first start of an upgraded node reports nothing, and the next one covers its logs', async (t) => {
  const dir = tempDirFor(t);
  await stopped(dir, 1, 6);
  for (const log of ['spool', 'receipts']) await rm(join(dir, `${log}.extent`));
  assert.deepEqual(await restart(dir), []);
  await rm((await segmentsOf(dir, 'receipts'))[0]!);
  assert.equal((await restart(dir)).length, 1);
});

test('the extent that a killed process noted is covered, later records are not', async (t) => {
  const dir = tempDirFor(t);
  const killed = await run(dir);
  await accept(killed, 1, 4);
  await killed.missing.note();
  await accept(killed, 5, 2);
  const segments = await segmentsOf(dir, 'spool');
  assert.equal(segments.length, 3);
  await rm(segments[2]!);
  assert.deepEqual(await restart(dir), [], 'appended later');
  await rm(segments[1]!);
  assert.match((await restart(dir)).join(), /no segment 2/);
});

test('deliveries that were settled and receipts that were removed are not lost', async (t) => {
  const dir = tempDirFor(t);
  const killed = await run(dir);
  await accept(killed, 1, 6);
  await killed.missing.note();
  await takeAll(killed.spool);
  for (let times = 0; times < 5; times++) await killed.spool.maintain(NEVER);
  await killed.spool.removeSettled(NEVER);
  assert.equal(killed.spool.bytes, 0);
  assert.deepEqual(await restart(dir), []);
  assert.deepEqual(await restart(dir), []);
});

for (const damaged of ['spool', 'receipts'] as const)
  test(`a durable end of ${damaged} that is damaged is found after the torn tail was cut off`, async (t) => {
    const dir = tempDirFor(t);
    await stopped(dir, 1, 6);
    const newest = (await segmentsOf(dir, damaged)).at(-1)!;
    const bytes = await readFile(newest);
    bytes.fill(0, bytes.length - 128);
    await writeFile(newest, bytes);
    const [problem] = await restart(dir);
    assert.match(problem!, new RegExp(`^a part of the directory ${damaged} .*bytes\\)`));
    assert.deepEqual(await restart(dir), [problem]);
  });

for (const part of ['/logs', '.extent'])
  test(`a loss is reported by each start while files with ${part} cannot be written`, async (t) => {
    const dir = tempDirFor(t);
    await stopped(dir, 1, 6);
    await rm((await segmentsOf(dir, 'spool'))[0]!);
    const disk = new FaultyDisk();
    disk.fail(part, 'EROFS', 'create', 'write', 'sync', 'remove');
    for (let at = 0; at < 2; at++) assert.equal((await restart(dir, disk)).length, 1);
    disk.mend();
    for (let at = 0; at < 2; at++) assert.equal((await restart(dir, disk)).length, 1);
    await rm(join(dir, 'logs'));
    assert.deepEqual(await restart(dir), []);
  });

test('a loss of the spool that cannot be recorded does not make removed receipts a loss', async (t) => {
  const dir = tempDirFor(t);
  const disk = new FaultyDisk();
  await stopped(dir, 1, 2);
  const [first] = await segmentsOf(dir, 'receipts');
  await rm((await segmentsOf(dir, 'spool'))[0]!);
  disk.fail('/logs', 'EIO', 'create', 'write', 'sync', 'remove');
  const running = await run(dir, disk);
  assert.equal(running.reported.length, 1);
  await running.missing.extents.receipts.leave(1);
  await rm(first!);
  const [problem, ...more] = await restart(dir, disk);
  assert.match(problem!, /directory spool/);
  assert.deepEqual(more, []);
});

test('an accepted loss is not reported again although the extent could not be replaced', async (t) => {
  const dir = tempDirFor(t);
  await stopped(dir, 1, 6);
  await rm((await segmentsOf(dir, 'spool'))[1]!);
  await rm(join(dir, 'logs'));
  const disk = new FaultyDisk();
  disk.fail('spool.extent', 'EIO', 'create', 'write', 'remove');
  const { reported, warnings, stop } = await run(dir, disk);
  await stop();
  assert.deepEqual([reported, warnings.length], [[], 1]);
  disk.mend();
  for (let at = 0; at < 2; at++) assert.deepEqual(await restart(dir, disk), []);
});

/** The disks after a power failure at any step. */
function* crashes(disk: CrashFileSystem, images_max: number): Generator<{ point: number; image: CrashFileSystem }> {
  let state = 7;
  const random = (): number => (state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0) / 2 ** 32;
  for (let point = 0; point <= disk.operations; point++)
    for (const image of disk.imagesAt(point, images_max, random)) yield { point, image: new CrashFileSystem(image) };
}

test('no power failure looks like a loss, even while segments are removed', { timeout: 120_000 }, async (t) => {
  const disk = new CrashFileSystem();
  const running = await run('/data', disk);
  for (let round = 0; round < 3; round++) {
    await accept(running, 1 + 4 * round, 4);
    await running.missing.note();
    const settled = running.spool.take({ messages: 3, bytes: 1 << 20 }, () => Infinity);
    running.spool.settle(settled);
    await running.spool.maintain(NEVER);
    await running.missing.note();
  }
  await takeAll(running.spool);
  await running.spool.removeSettled(NEVER);
  await running.stop();
  let images = 0;
  for (const { point, image } of crashes(disk, 12)) {
    images += 1;
    assert.deepEqual(await restart('/data', image), [], `after ${point} operations`);
  }
  assert.ok(images > 300, `only ${images} disks were tried`);
  t.diagnostic(`${images} disks`);
});

test('no power failure during the start that finds a loss hides it', { timeout: 120_000 }, async () => {
  const written = new CrashFileSystem();
  const first = await run('/data', written);
  await accept(first, 1, 6);
  await first.stop();
  const files = written.files();
  files.delete([...files.keys()].find((path) => path.startsWith('/data/spool/segments/00000002'))!);
  const disk = new CrashFileSystem(files);
  await restart('/data', disk);
  for (const { point, image } of crashes(disk, 30))
    assert.equal((await restart('/data', image)).length, 1, `after ${point} operations`);
});

test('no power failure during the start that accepts a loss reports it again', { timeout: 120_000 }, async () => {
  const written = new CrashFileSystem();
  const first = await run('/data', written);
  await accept(first, 1, 6);
  await first.stop();
  const files = written.files();
  files.delete([...files.keys()].find((path) => path.startsWith('/data/spool/segments/00000002'))!);
  files.delete('/data/logs');
  const disk = new CrashFileSystem(files);
  assert.deepEqual(await restart('/data', disk), []);
  for (const { point, image } of crashes(disk, 30))
    assert.deepEqual(await restart('/data', image), [], `after ${point} operations`);
});

test('the task notes the extents, and ends with the stop', async (t) => {
  const dir = tempDirFor(t);
  const killed = await run(dir);
  const stopping = new AbortController();
  const task = killed.missing.run({ stopping: stopping.signal, signal: NEVER });
  await accept(killed, 1, 2);
  const written = await readFile(join(dir, 'spool.extent'));
  await eventually('the extent is noted', async () => !written.equals(await readFile(join(dir, 'spool.extent'))));
  stopping.abort();
  await task;
});
