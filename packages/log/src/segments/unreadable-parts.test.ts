/** Bytes that the disk cannot read: an open rejects, or skips them on request and loses no record around them. */
import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import { tempDirFor } from '@ron/testkit';
import { FaultyDisk } from '../testing/index.ts';
import { scanDirectory } from './scan-directory.ts';
import { SegmentLog, type Damage } from './segment-log.ts';

const { signal } = new AbortController();
/** Records of five sectors. */
const RECORD_BYTES = 5 * 4096;
const PAYLOAD_BYTES = RECORD_BYTES - 64;
const record = (key: number) => ({ type: 1, id: new Uint8Array([key]), payload: Buffer.alloc(PAYLOAD_BYTES, key) });

/** A log of five records in one segment, and the keys that an open finds. */
async function fiveRecords(t: TestContext) {
  const disk = new FaultyDisk();
  const dir = tempDirFor(t);
  const log = await SegmentLog.open({ dir, fs: disk, signal });
  for (const key of [1, 2, 3, 4, 5]) await log.append([record(key)], signal);
  await log.close();
  const found: number[] = [];
  const damages: Damage[] = [];
  const open = (skipsUnreadable: boolean): Promise<SegmentLog> => {
    found.length = damages.length = 0;
    const onRecord = ({ id }: { id: Uint8Array }): void => void found.push(id[0]!);
    const onDamage = (damage: Damage): void => void damages.push(damage);
    return SegmentLog.open({ dir, fs: disk, onRecord, onDamage, skipsUnreadable, signal });
  };
  return { disk, dir, found, damages, open };
}

test('an open rejects by default, and skips the record of a bad sector on request', async (t) => {
  const { disk, dir, found, damages, open } = await fiveRecords(t);
  const at = 2 * RECORD_BYTES + 5000;
  disk.badSector('.seg', at, at + 1);
  await assert.rejects(open(false), { code: 'EIO' });
  const log = await open(true);
  assert.deepEqual(found, [1, 2, 4, 5]);
  assert.deepEqual(damages, [
    { segment: 1, what: 'unreadable part', offset: 2 * RECORD_BYTES + 4096, bytes: 4096 },
    { segment: 1, what: 'gap', offset: 2 * RECORD_BYTES, bytes: RECORD_BYTES },
  ]);
  const scanned: number[] = [];
  const onRecord = ({ id }: { id: Uint8Array }): void => void scanned.push(id[0]!);
  await scanDirectory({ dir, fs: disk, onRecord, onDamage: () => undefined, skipsUnreadable: true, signal });
  await log.scanSegment(1, onRecord, () => undefined, signal, { skipsUnreadable: true });
  assert.deepEqual(scanned, [1, 2, 4, 5, 1, 2, 4, 5]);
  await assert.rejects(
    log.scanSegment(1, onRecord, () => undefined, signal),
    { code: 'EIO' },
  );
  await log.close();
});

test('an unreadable end is not cut off: its records are back once the disk reads them', async (t) => {
  const { disk, found, open } = await fiveRecords(t);
  disk.badSector('.seg', 4 * RECORD_BYTES, 5 * RECORD_BYTES);
  const log = await open(true);
  assert.deepEqual(found, [1, 2, 3, 4]);
  await log.append([record(6)], signal);
  await log.close();
  disk.mend();
  const again = await open(true);
  assert.deepEqual(found, [1, 2, 3, 4, 5, 6]);
  await again.close();
});

test('a disk with too many unreadable parts has failed: the open rejects', async (t) => {
  const { disk, open } = await fiveRecords(t);
  const log = await open(true);
  for (let key = 0; key < 60; key++) await log.append([record(key)], signal);
  await log.close();
  disk.badSector('.seg', 0, Infinity);
  await assert.rejects(open(true), { code: 'EIO' });
  disk.mend();
  await (await open(true)).close();
});
