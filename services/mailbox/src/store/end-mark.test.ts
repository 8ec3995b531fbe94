/** The file `end` keeps its format: files of earlier versions are read. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { CrashFileSystem } from '@ron/log/testing';
import { EndMark, readEndMark } from './end-mark.ts';

const DIR = '/mailbox';
/** As an earlier version wrote the number 0x0102030405. */
const EARLIER = Buffer.from('524f4e45050403020100000052f21402', 'hex');

test('a file of an earlier version is read, and a new one has the same bytes', async () => {
  const disk = new CrashFileSystem(new Map([[`${DIR}/end`, EARLIER]]));
  assert.equal(await readEndMark(disk, DIR), 0x0102030405);
  const empty = new CrashFileSystem();
  const mark = new EndMark(empty, DIR, 0);
  await mark.note(0x0102030405);
  await mark.close(0);
  assert.deepEqual(Buffer.from(empty.files().get(`${DIR}/end`)!), EARLIER);
});

test('a missing file is zero, a damaged one is undefined', async () => {
  assert.equal(await readEndMark(new CrashFileSystem(), DIR), 0);
  for (const bytes of [EARLIER.subarray(1), Buffer.concat([EARLIER, EARLIER]), Buffer.alloc(16)])
    assert.equal(await readEndMark(new CrashFileSystem(new Map([[`${DIR}/end`, bytes]])), DIR), undefined);
});
