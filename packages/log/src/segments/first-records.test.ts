/** The first records of a segment: in every segment, before any other record, and computed from all records before it. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { FileSystem } from '../disk/file-system.ts';
import { CrashFileSystem } from '../testing/index.ts';
import { SegmentLog } from './segment-log.ts';

const signal = new AbortController().signal;
const DIR = '/log';
const SEGMENT_BYTES = 4096;
const IMAGES_MAX = 100;
const FIRST = 9;

/** Opens a log whose first records hold the number of records that were replayed or reported durable before. */
async function open(fs: FileSystem): Promise<{ log: SegmentLog; records: [type: number, count: number][][] }> {
  let known = 0;
  const segments = new Map<number, [number, number][]>();
  const log = await SegmentLog.open({
    dir: DIR,
    fs,
    segment_bytes: SEGMENT_BYTES,
    signal,
    onRecord: (head, { segment }, body) => {
      const records = segments.get(segment) ?? [];
      segments.set(segment, records);
      records.push([head.type, head.type === FIRST ? body.readUInt32LE(0) : known]);
      known += 1;
    },
    onDurable: (records) => void (known += records.length),
    firstRecords: () => {
      const payload = Buffer.alloc(4);
      payload.writeUInt32LE(known);
      return [{ type: FIRST, id: new Uint8Array(0), payload }];
    },
  });
  return { log, records: [...segments.values()] };
}

const append = (log: SegmentLog, bytes: number, durable = true): Promise<unknown> =>
  log.append([{ type: 1, id: new Uint8Array(0), payload: new Uint8Array(bytes) }], signal, { durable });

/** Each segment begins with its first record, which counted every record before it. */
function check(segments: readonly (readonly [number, number][])[]): void {
  let count = 0;
  for (const records of segments) {
    assert.deepEqual(records[0], [FIRST, count]);
    assert.ok(records.slice(1).every(([type]) => type === 1));
    count += records.length;
  }
}

test('no crash leaves a segment without its first records', async () => {
  const disk = new CrashFileSystem();
  const { log } = await open(disk);
  for (const bytes of [1000, 1500, 1800, 3000]) {
    await append(log, bytes, false);
    await Promise.all([append(log, 100), append(log, bytes)]);
  }
  log.rotate();
  await append(log, 10);
  await log.close();
  let images = 0;
  for (let point = 0; point <= disk.operations; point++) {
    for (const image of disk.imagesAt(point, IMAGES_MAX, () => 0.5)) {
      images += 1;
      const crashed = new CrashFileSystem(image);
      const after = await open(crashed);
      check(after.records);
      await append(after.log, 2000);
      await append(after.log, 2000);
      await after.log.close();
      const last = await open(crashed);
      check(last.records);
      await last.log.close();
    }
  }
  assert.ok(images >= 40, `only ${images} disks were tried`);
});

test('a group as large as a segment is written once, after the first records', async () => {
  const disk = new CrashFileSystem();
  const { log } = await open(disk);
  await append(log, SEGMENT_BYTES - 64);
  await append(log, SEGMENT_BYTES - 64);
  await log.close();
  const { records } = await open(disk);
  assert.deepEqual(
    records.map((each) => each.length),
    [2, 2],
  );
  check(records);
});

test('first records that a full disk refuses are written before the next record', async () => {
  let isFull = false;
  const disk = new CrashFileSystem(new Map(), {
    before: (operation) => {
      if (isFull && operation === 'write') throw Object.assign(new Error('ENOSPC'), { code: 'ENOSPC' });
    },
  });
  const { log } = await open(disk);
  isFull = true;
  await assert.rejects(append(log, 10), { code: 'storage_full' });
  isFull = false;
  while (true) {
    try {
      await append(log, 10);
      break;
    } catch {
      // Appends are refused for a short while after a failure.
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }
  await log.close();
  const { records } = await open(disk);
  assert.deepEqual(
    records.map((each) => each.length),
    [2],
  );
  check(records);
});
