/** A directory that is deleted, moved or replaced under a log: open descriptors still work, but the log detects it. */
import assert from 'node:assert/strict';
import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, renameSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, test } from 'node:test';
import { isRonError } from '@ron/kernel';
import { isGone } from '../disk/disk-error.ts';
import { SegmentLog } from './segment-log.ts';

const signal = new AbortController().signal;
let root: string;
let dir: string;
let log: SegmentLog;
beforeEach(async () => {
  root = mkdtempSync(join(tmpdir(), 'ron-gone-'));
  dir = join(root, 'volume');
  log = await SegmentLog.open({ dir, segment_bytes: 4096, signal });
  await log.append([record(1)], signal);
});
afterEach(async () => {
  await log.close();
  rmSync(root, { recursive: true });
});

const record = (key: number) => ({ type: 1, id: new Uint8Array(32).fill(key), payload: Buffer.alloc(100, key) });
const segmentsIn = (volume: string): string[] => readdirSync(join(volume, 'segments'));
const saysGone = (error: unknown): boolean => isRonError(error, 'not_ready') && isGone(error.cause);

const HARMS: Record<string, () => void> = {
  'the directory is deleted': () => rmSync(dir, { recursive: true }),
  'the segments are deleted': () => rmSync(join(dir, 'segments'), { recursive: true }),
  'the segment that is being written is deleted': () => rmSync(join(dir, 'segments', segmentsIn(dir)[0]!)),
  'the directory is moved': () => renameSync(dir, join(root, 'elsewhere')),
  'a copy takes its place': () => {
    renameSync(dir, join(root, 'elsewhere'));
    cpSync(join(root, 'elsewhere'), dir, { recursive: true });
  },
  'an empty directory takes its place': () => {
    renameSync(dir, join(root, 'elsewhere'));
    mkdirSync(join(dir, 'segments'), { recursive: true });
  },
};

for (const [harm, happens] of Object.entries(HARMS)) {
  test(`${harm}: no append is acknowledged from then on`, async () => {
    happens();
    await assert.rejects(log.append([record(2)], signal), saysGone);
  });
}

test('a sync without unsynced records reports that the directory is gone', async () => {
  rmSync(dir, { recursive: true });
  await assert.rejects(log.sync(signal), saysGone);
});

test('unsynced records are lost with the directory', async () => {
  const before = log.durable;
  await log.append([record(2)], signal, { durable: false });
  rmSync(dir, { recursive: true });
  await assert.rejects(log.sync(signal), saysGone);
  assert.deepEqual(log.durable, before);
});

test('a deleted segment is detected when the next one is created', async () => {
  await log.append([record(2)], signal, { durable: false });
  rmSync(join(dir, 'segments', segmentsIn(dir)[0]!));
  log.rotate();
  await assert.rejects(log.append([record(3)], signal), saysGone);
});

test('nothing is written to its replacement', async () => {
  HARMS['a copy takes its place']!();
  const files = (): Record<string, string> =>
    Object.fromEntries(segmentsIn(dir).map((name) => [name, readFileSync(join(dir, 'segments', name), 'hex')]));
  const before = files();
  await assert.rejects(log.append([record(2)], signal), saysGone);
  await new Promise((resolve) => setTimeout(resolve, 150));
  // The refusal after the failure is over: now it would create a new segment.
  await assert.rejects(log.append([record(3)], signal), saysGone);
  assert.deepEqual(files(), before);
});

test('appends succeed again when the directory is back', async () => {
  HARMS['the directory is moved']!();
  await assert.rejects(log.append([record(2)], signal), saysGone);
  renameSync(join(root, 'elsewhere'), dir);
  await new Promise((resolve) => setTimeout(resolve, 150));
  const [place] = await log.append([record(3)], signal);
  assert.equal((await log.read(place!, 100, 0))!.payload[0], 3);
  const found: number[] = [];
  const again = await SegmentLog.open({ dir, signal, onRecord: (head) => void found.push(head.id[0]!) });
  await again.close();
  assert.ok(found.includes(1) && found.includes(3), found.join());
});
