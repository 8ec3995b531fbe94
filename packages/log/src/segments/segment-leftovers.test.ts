/** Two files with one segment number: no valid record is lost, and no operator is needed. */
import assert from 'node:assert/strict';
import { readdirSync } from 'node:fs';
import { basename, join } from 'node:path';
import { test } from 'node:test';
import { tempDirFor } from '@ron/testkit';
import { DiskGate, gatedFileSystem } from '../disk/disk-gate.ts';
import { realFileSystem, type FileSystem } from '../disk/file-system.ts';
import type { Position, RecordHead } from './record.ts';
import { SegmentLog } from './segment-log.ts';
import { CrashFileSystem } from '../testing/index.ts';

const { signal } = new AbortController();
const record = (key: number) => ({ type: 1, id: new Uint8Array(32).fill(key), payload: Buffer.alloc(200, key) });
const later = (ms: number): Promise<void> => new Promise((resolve) => void setTimeout(resolve, ms));

/** The files of a log that holds these records, one segment each. */
async function filesWith(...keys: number[]): Promise<Map<string, Uint8Array>> {
  const fs = new CrashFileSystem();
  const log = await SegmentLog.open({ dir: '/log', fs, signal });
  for (const key of keys) {
    await log.append([record(key)], signal);
    log.rotate();
  }
  await log.close();
  return fs.imagesAt(fs.operations, 1, Math.random)[Symbol.iterator]().next().value!;
}

/** Renames the only file so that it has this number. */
const numbered = (files: Map<string, Uint8Array>, segment: number): [string, Uint8Array] => {
  const [[path, bytes]] = [...files] as [[string, Uint8Array]];
  return [join('/log/segments', String(segment).padStart(8, '0') + basename(path).slice(8)), bytes];
};

async function open(fs: FileSystem, found: number[] = [], from?: Position): Promise<SegmentLog> {
  const onRecord = (head: RecordHead): void => void found.push(head.id[0]!);
  return await SegmentLog.open({ dir: '/log', fs, signal, onRecord, ...(from && { from }) });
}

/** The replayed records, without the one that it appends. */
async function keysOf(fs: FileSystem, from?: Position): Promise<number[]> {
  const found: number[] = [];
  const log = await open(fs, found, from);
  await log.append([record(99)], signal);
  await log.close();
  return found.filter((key) => key !== 99).toSorted((a, b) => a - b);
}

/** A caller that knows all segments up to the third cannot know which of the files of the second one it knows. */
const KNOWN: Position = { segment: 3, offset: 320 };

test('files of one number that hold records are all replayed, after a crash at any point', async () => {
  const image = new Map([
    numbered(await filesWith(1), 1),
    numbered(await filesWith(2), 2),
    numbered(await filesWith(3), 2),
    numbered(await filesWith(4), 2),
    numbered(await filesWith(5), 3),
  ]);
  const disk = new CrashFileSystem(image);
  assert.ok(await SegmentLog.reaches('/log', { segment: 2, offset: 320 }, disk));
  const before = disk.operations;
  assert.deepEqual(await keysOf(disk, KNOWN), [2, 3, 4]);
  let images = 0;
  for (let point = before; point <= disk.operations; point++) {
    for (const crashed of disk.imagesAt(point, 100, Math.random)) {
      images += 1;
      assert.deepEqual(await keysOf(new CrashFileSystem(crashed)), [1, 2, 3, 4, 5], `after operation ${point}`);
      assert.deepEqual(await keysOf(new CrashFileSystem(crashed), KNOWN), [2, 3, 4], `after operation ${point}`);
    }
  }
  assert.ok(images > 10, `${images} disks`);
});

test('an empty file beside one with records is removed, and the other keeps its number', async () => {
  const files = await filesWith(2);
  const empty = '/log/segments/00000002-00000000.seg';
  const fs = new CrashFileSystem(
    new Map([numbered(files, 2), [empty, new Uint8Array(0)], numbered(await filesWith(3), 3)]),
  );
  const log = await open(fs);
  assert.deepEqual(log.files.numbers(), [2, 3]);
  await log.close();
  assert.ok(!(await fs.list('/log/segments')).includes(basename(empty)));
  assert.deepEqual(await keysOf(fs), [2, 3]);
});

test('an empty file with a unique number is removed unless it is the last', async () => {
  const image = new Map([
    ['/log/segments/00000001-00000000.seg', new Uint8Array(0)],
    numbered(await filesWith(2), 2),
    ['/log/segments/00000007-00000000.seg', new Uint8Array(0)],
  ]);
  const log = await open(new CrashFileSystem(image));
  assert.deepEqual(log.files.numbers(), [2, 7]);
  await log.append([record(3)], signal);
  assert.equal(log.durable.position.segment, 7);
  await log.close();
});

test('a number is not reused after a late create, in this process or the next', async (t) => {
  const dir = tempDirFor(t);
  let hang: Promise<void> | undefined;
  const created: string[] = [];
  const slow: FileSystem = Object.assign(Object.create(realFileSystem) as FileSystem, {
    create: async (path: string) => {
      await hang;
      hang = undefined;
      const file = await realFileSystem.create(path);
      created.push(basename(path));
      return file;
    },
  });
  const fs = gatedFileSystem(slow, new DiskGate({ calls_max: 8, late_ms: 500 }));
  const log = await SegmentLog.open({ dir, fs, signal });
  await log.append([record(1)], signal);
  log.rotate();
  const { promise, resolve: release } = Promise.withResolvers<void>();
  hang = promise;
  await assert.rejects(log.append([record(2)], signal));
  release();
  while (created.length < 2) await later(20);
  for (;;) {
    const isDone = await log.append([record(3)], signal).then(
      () => true,
      () => later(20),
    );
    if (isDone === true) break;
  }
  await log.close();
  assert.deepEqual(
    readdirSync(join(dir, 'segments'))
      .map((name) => Number(name.slice(0, 8)))
      .toSorted((a, b) => a - b),
    [1, 2, 3],
  );
  const found: number[] = [];
  const again = await SegmentLog.open({ dir, signal, onRecord: (head) => void found.push(head.id[0]!) });
  assert.deepEqual(found, [1, 3]);
  assert.deepEqual(again.files.numbers(), [1, 3]);
  await again.close();
});

test('a number of more than eight digits is read again, and the largest one is not exceeded', async () => {
  const fs = new CrashFileSystem(
    new Map([numbered(await filesWith(1), 1), ['/log/segments/99999999-00000000.seg', new Uint8Array(0)]]),
  );
  const log = await open(fs);
  await log.append([record(2)], signal);
  log.rotate();
  await log.append([record(3)], signal);
  assert.deepEqual(log.files.numbers(), [1, 99_999_999, 100_000_000]);
  await log.close();
  assert.deepEqual(await keysOf(fs), [1, 2, 3]);
  const full = new CrashFileSystem(new Map([['/log/segments/4294967295-00000000.seg', new Uint8Array(0)]]));
  const last = await open(full);
  await last.append([record(4)], signal);
  last.rotate();
  await assert.rejects(last.append([record(5)], signal), /no segment can have a number above/);
  await last.close();
  assert.deepEqual((await open(full)).files.numbers(), [4_294_967_295]);
});
