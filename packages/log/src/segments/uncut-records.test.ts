/** Records whose sync failed are cut off before the log continues, even if the disk refuses to cut them off at first. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isRonError } from '@ron/kernel';
import type { RecordInput } from './record.ts';
import { SegmentLog } from './segment-log.ts';
import { CrashFileSystem } from '../testing/index.ts';

const { signal } = new AbortController();
const record = (key: number): RecordInput => ({
  type: 1,
  id: new Uint8Array(32).fill(key),
  payload: new Uint8Array(10).fill(key),
});

/** For a while after a failure the log refuses appends. */
async function appendWhenAccepted(log: SegmentLog, key: number): Promise<void> {
  for (;;) {
    try {
      await log.append([record(key)], signal);
      return;
    } catch (error) {
      if (!isRonError(error, 'not_ready')) throw error;
      await new Promise((resolve) => void setTimeout(resolve, 5));
    }
  }
}

async function replayed(files: ReadonlyMap<string, Uint8Array>): Promise<number[]> {
  const keys: number[] = [];
  const onRecord = ({ id }: { id: Uint8Array }): void => void keys.push(id[0]!);
  const log = await SegmentLog.open({ dir: '/log', fs: new CrashFileSystem(files), signal, onRecord });
  await log.close();
  return keys;
}

test('a record whose append failed is not replayed when later records are in a newer segment', async () => {
  let isBroken = false;
  let truncates = 0;
  const fs = new CrashFileSystem(new Map(), {
    before: (operation) => {
      if (!isBroken || (operation !== 'sync' && operation !== 'truncate')) return;
      if (operation === 'truncate') truncates += 1;
      throw Object.assign(new Error('EIO'), { code: 'EIO' });
    },
  });
  const log = await SegmentLog.open({ dir: '/log', fs, signal });
  await log.append([record(1)], signal);
  isBroken = true;
  await assert.rejects(log.append([record(2)], signal));
  assert.equal(truncates, 1);
  isBroken = false;
  await appendWhenAccepted(log, 3);
  await log.append([record(4)], signal);
  assert.equal(log.durable.position.segment, 2);
  await log.close();
  assert.deepEqual(await replayed(fs.files()), [1, 3, 4]);
});

test('while such a record cannot be cut off, appends fail and no segment is created', async () => {
  let [isBroken, truncates] = [false, 0];
  const fs = new CrashFileSystem(new Map(), {
    before: (operation) => {
      if (!isBroken || (operation !== 'sync' && operation !== 'truncate')) return;
      // After the first attempt syncs work: only the cut blocks the log.
      if (operation === 'sync' && truncates > 0) return;
      if (operation === 'truncate') truncates += 1;
      throw Object.assign(new Error('EIO'), { code: 'EIO' });
    },
  });
  const log = await SegmentLog.open({ dir: '/log', fs, signal });
  await log.append([record(1)], signal);
  isBroken = true;
  for (;;) {
    await assert.rejects(log.append([record(2)], signal), (error) => isRonError(error, 'not_ready'));
    if (truncates >= 3) break;
    await new Promise((resolve) => void setTimeout(resolve, 5));
  }
  assert.deepEqual(log.files.numbers(), [1]);
  isBroken = false;
  await appendWhenAccepted(log, 3);
  await log.close();
  assert.deepEqual(await replayed(fs.files()), [1, 3]);
});
