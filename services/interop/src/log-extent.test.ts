/** Lost segments and bytes of a log are found at the next start; no stop, crash or failure of the disk looks like a loss. */
import assert from 'node:assert/strict';
import { readdir, readFile, rename, rm, truncate, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { NEVER } from '@ron/kernel';
import { realFileSystem, segmentSizes, type FileSystem, type SegmentLog } from '@ron/log';
import { CrashFileSystem, FaultyDisk } from '@ron/log/testing';
import { tempDirFor } from '@ron/testkit';
import { LogExtent, openLog } from './log-extent.ts';

/** Two records for each segment. */
const SEGMENT_BYTES = 2048;
const PAYLOAD_BYTES = 800;
const DIR = '/data';

interface Started {
  readonly log: SegmentLog;
  readonly extent: LogExtent;
  /** Before and after the log was opened. */
  readonly losses: readonly (string | undefined)[];
}

async function start(dir: string, fs: FileSystem = realFileSystem): Promise<Started> {
  const extent = await LogExtent.open(fs, join(dir, 'log.extent'));
  const before = await segmentSizes(fs, join(dir, 'log')).then(
    (found) => extent.lossIn(found),
    () => undefined,
  );
  const init = { dir: join(dir, 'log'), fs, segment_bytes: SEGMENT_BYTES, skipsUnreadable: true, signal: NEVER };
  const log = await openLog(init, extent);
  const losses = [before, extent.lossIn(extent.found!)];
  await extent.begin().catch(() => undefined);
  return { log, extent, losses };
}

async function stop({ log, extent }: Started): Promise<void> {
  await log.close();
  await extent.close();
}

async function append(log: SegmentLog, count: number): Promise<void> {
  const record = { type: 1, id: Buffer.alloc(8), payload: Buffer.alloc(PAYLOAD_BYTES, 7) };
  for (let n = 0; n < count; n++) await log.append([record], NEVER);
}

/** A log of `records` records that was stopped. Its segments, oldest first. */
async function stopped(dir: string, records: number): Promise<string[]> {
  const started = await start(dir);
  await append(started.log, records);
  await stop(started);
  return await segmentsOf(dir);
}

async function segmentsOf(dir: string): Promise<string[]> {
  const segments = join(dir, 'log', 'segments');
  return (await readdir(segments)).toSorted().map((name) => join(segments, name));
}

async function restart(dir: string, fs?: FileSystem): Promise<string | undefined> {
  const started = await start(dir, fs);
  await stop(started);
  return started.losses.find((loss) => loss !== undefined);
}

test('a stop, a kill and a first start lose nothing', async (t) => {
  const dir = tempDirFor(t);
  await stopped(dir, 7);
  assert.equal(await restart(dir), undefined);
  const killed = await start(dir);
  await append(killed.log, 4);
  await killed.extent.note();
  await append(killed.log, 4);
  assert.equal(await restart(dir), undefined);
  assert.deepEqual(killed.losses, [undefined, undefined]);
});

for (const [name, at, loss] of [
  ['oldest', 0, 'no segment 1'],
  ['middle', 1, 'no segment 2'],
  ['newest', 3, 'no segment 4'],
] as const)
  test(`the ${name} segment is removed`, async (t) => {
    const dir = tempDirFor(t);
    const segments = await stopped(dir, 7);
    assert.equal(segments.length, 4);
    await rm(segments[at]!);
    assert.equal(await restart(dir), loss);
    assert.equal(await restart(dir), undefined, 'the extent was replaced');
  });

for (const [name, at] of [
  ['newest', 3],
  ['middle', 1],
] as const)
  test(`the ${name} segment is cut at the end of a record`, async (t) => {
    const dir = tempDirFor(t);
    const segments = await stopped(dir, 8);
    const { length } = await readFile(segments[at]!);
    await truncate(segments[at]!, length / 2);
    assert.equal(await restart(dir), `segment ${at + 1} has ${length / 2} of ${length} bytes`);
  });

test('all segments are removed, and the list in the message is short', async (t) => {
  const dir = tempDirFor(t);
  for (const path of await stopped(dir, 20)) await rm(path);
  assert.equal(await restart(dir), 'no segment 1, 2, 3, 4, 5, 6, 7, 8 and 2 more');
});

test('an older copy of the directory is put back', async (t) => {
  const dir = tempDirFor(t);
  await stopped(dir, 3);
  const before = await Promise.all((await segmentsOf(dir)).map(async (path) => [path, await readFile(path)] as const));
  await stopped(dir, 3);
  for (const path of await segmentsOf(dir)) await rm(path);
  for (const [path, bytes] of before) await writeFile(path, bytes);
  assert.match((await restart(dir))!, /^no segment 3; segment 2 has \d+ of \d+ bytes$/);
});

test('the last record of the newest segment is damaged: the start cuts it off, and finds that it was durable', async (t) => {
  const dir = tempDirFor(t);
  const [newest] = (await stopped(dir, 2)).slice(-1);
  const bytes = await readFile(newest!);
  // In the payload: padding follows.
  bytes[bytes.length - 100]! ^= 1;
  await writeFile(newest!, bytes);
  const started = await start(dir);
  assert.deepEqual(started.losses, [undefined, `segment 1 has ${bytes.length / 2} of ${bytes.length} bytes`]);
  await stop(started);
});

test('records that were appended after the last note and before a kill are not covered', async (t) => {
  const dir = tempDirFor(t);
  const killed = await start(dir);
  await append(killed.log, 1);
  await killed.extent.note();
  const [path] = await segmentsOf(dir);
  const { length } = await readFile(path!);
  await append(killed.log, 1);
  await truncate(path!, length);
  assert.equal(await restart(dir), undefined);
});

test('segments that the log removes are not lost, even if the process ends at once', async (t) => {
  const dir = tempDirFor(t);
  const killed = await start(dir);
  await append(killed.log, 7);
  await killed.extent.note();
  for (const segment of [1, 2]) await killed.log.remove(segment);
  assert.equal(await restart(dir), undefined);
});

test('an older segment that stays when a newer one was removed is still covered', async (t) => {
  const dir = tempDirFor(t);
  const killed = await start(dir);
  await append(killed.log, 7);
  for (const segment of [2, 3]) await killed.log.remove(segment);
  await killed.extent.note();
  const [first] = await segmentsOf(dir);
  await rm(first!);
  assert.equal(await restart(dir), 'no segment 1');
});

test('an empty log, and one whose numbers begin again, have lost nothing', async (t) => {
  const dir = tempDirFor(t);
  const started = await start(dir);
  await append(started.log, 3);
  await started.extent.note();
  started.log.rotate();
  await started.log.sync(NEVER);
  for (const segment of [1, 2]) await started.log.remove(segment);
  await stop(started);
  assert.equal(await restart(dir), undefined);
  for (const path of await segmentsOf(dir)) await rm(path);
  const anew = await start(dir);
  assert.deepEqual(anew.losses, [undefined, undefined]);
  await append(anew.log, 1);
  assert.deepEqual(anew.log.files.numbers(), [1]);
  await stop(anew);
  assert.equal(await restart(dir), undefined);
});

test('a segment that got another number is not lost', async (t) => {
  const dir = tempDirFor(t);
  const [first] = await stopped(dir, 3);
  await rename(first!, first!.replace('00000001', '00000009'));
  assert.equal(await restart(dir), undefined);
});

for (const damage of ['missing', 'damaged', 'longer'] as const)
  test(`an extent that is ${damage} states nothing, and is written again`, async (t) => {
    const dir = tempDirFor(t);
    const segments = await stopped(dir, 7);
    const path = join(dir, 'log.extent');
    if (damage === 'missing') await rm(path);
    if (damage === 'damaged') await writeFile(path, Buffer.alloc(100, 1));
    if (damage === 'longer') await writeFile(path, Buffer.concat([await readFile(path), Buffer.alloc(1)]));
    await rm(segments[0]!);
    assert.equal(await restart(dir), undefined);
    await rm(segments[1]!);
    assert.equal(await restart(dir), 'no segment 2');
  });

test('segments that cannot be read are not lost', async (t) => {
  const dir = tempDirFor(t);
  const [, second] = await stopped(dir, 7);
  const disk = new FaultyDisk();
  disk.badSector(second!, 0, 4096);
  assert.equal(await restart(dir, disk), undefined);
  const [newest] = (await segmentsOf(dir)).slice(-1);
  disk.badSector(newest!, 0, 4096);
  assert.equal(await restart(dir, disk), undefined);
  const unsized: FileSystem['open'] = async (path, access) => {
    const file = await realFileSystem.open(path, access);
    if (path !== second || access === 'write') return file;
    return { ...wrap(file), size: () => Promise.reject(new Error('EIO')) };
  };
  const extent = await LogExtent.open(realFileSystem, join(dir, 'log.extent'));
  const found = await segmentSizes({ ...realFileSystem, open: unsized }, join(dir, 'log'));
  assert.deepEqual([extent.lossIn(found), found[1]?.bytes], [undefined, Infinity]);
});

const wrap = (file: Awaited<ReturnType<FileSystem['open']>>): Awaited<ReturnType<FileSystem['open']>> => ({
  write: (...at) => file.write(...at),
  read: (...at) => file.read(...at),
  sync: () => file.sync(),
  truncate: (bytes) => file.truncate(bytes),
  size: () => file.size(),
  close: () => file.close(),
});

test('if the extent cannot be written, it is removed before a segment is', async (t) => {
  const dir = tempDirFor(t);
  const disk = new FaultyDisk();
  const started = await start(dir, disk);
  await append(started.log, 7);
  await started.extent.note();
  disk.fail('log.extent', 'ENOSPC', 'write');
  await started.log.remove(1);
  assert.ok(!(await readdir(dir)).includes('log.extent'));
  assert.equal(await restart(dir), undefined);
});

test('if the extent can neither be written nor removed, the segment stays until it can', async (t) => {
  const dir = tempDirFor(t);
  const disk = new FaultyDisk();
  const started = await start(dir, disk);
  await append(started.log, 7);
  await started.extent.note();
  disk.fail('log.extent', 'EIO', 'write', 'remove');
  await assert.rejects(started.log.remove(1));
  assert.deepEqual(started.log.files.numbers(), [1, 2, 3, 4]);
  assert.equal(await restart(dir), undefined);
  disk.mend();
  await started.log.remove(1);
  assert.equal(await restart(dir), undefined);
});

test('a note during a removal does not state the segment again', async (t) => {
  const dir = tempDirFor(t);
  const started = await start(dir);
  await append(started.log, 7);
  await started.extent.note();
  // It waits for its reader.
  const lease = started.log.files.lease(1);
  const removed = started.log.remove(1);
  await append(started.log, 1);
  await started.extent.note();
  lease[Symbol.dispose]();
  await removed;
  assert.equal(await restart(dir), undefined);
});

test('a read-only disk keeps the extent, and the next start compares with it', async (t) => {
  const dir = tempDirFor(t);
  const segments = await stopped(dir, 7);
  const disk = new FaultyDisk();
  disk.fail('log', 'EROFS', 'create', 'write', 'remove');
  assert.equal(await restart(dir, disk), undefined);
  await rm(segments[1]!);
  assert.equal(await restart(dir, disk), 'no segment 2');
  disk.mend();
  assert.equal(await restart(dir, disk), 'no segment 2');
  assert.equal(await restart(dir, disk), undefined);
});

test('more segments than the extent holds: the newest are covered', async (t) => {
  const dir = tempDirFor(t);
  const segments = await stopped(dir, 2 * 257);
  assert.equal(segments.length, 257);
  await rm(segments[1]!);
  assert.equal(await restart(dir), undefined);
  await rm(segments[2]!);
  await rm(segments.at(-1)!);
  assert.equal(await restart(dir), 'no segment 3, 257');
});

test('no power failure at any step looks like a loss', { timeout: 120_000 }, async (t) => {
  const disk = new CrashFileSystem();
  {
    const started = await start(DIR, disk);
    for (let round = 0; round < 3; round++) {
      await append(started.log, 3);
      await started.extent.note();
      await started.log.remove(started.log.files.numbers()[0]!);
      await append(started.log, 1);
      await started.extent.note();
    }
    started.log.rotate();
    await started.log.sync(NEVER);
    for (const segment of started.log.files.numbers().slice(0, -1)) await started.log.remove(segment);
    await append(started.log, 1);
    await stop(started);
  }
  let images = 0;
  let state = 7;
  const random = (): number => (state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0) / 2 ** 32;
  for (let point = 0; point <= disk.operations; point++)
    for (const image of disk.imagesAt(point, 60, random)) {
      images += 1;
      const started = await start(DIR, new CrashFileSystem(image));
      assert.deepEqual(started.losses, [undefined, undefined], `after ${point} operations`);
      await stop(started);
    }
  assert.ok(images > 500, `only ${images} disks were tried`);
  t.diagnostic(`${images} disks`);
});
