/** Records are reported once they are durable: in order, before their append resolves, and never if their sync failed. */
import assert from 'node:assert/strict';
import { beforeEach, test } from 'node:test';
import type { DurableRecord, RecordInput } from './record.ts';
import { SegmentLog } from './segment-log.ts';
import { CrashFileSystem } from '../testing/index.ts';

const { signal } = new AbortController();
const record = (key: number, bytes = 10): RecordInput => ({
  type: 1,
  id: new Uint8Array(32).fill(key),
  payload: new Uint8Array(bytes).fill(key),
});

let syncs: number;
let isBroken: boolean;
let reported: { key: number; segment: number; offset: number; record: DurableRecord }[];
let fs: CrashFileSystem;
let log: SegmentLog;

const keys = (): number[] => reported.map((each) => each.key);

beforeEach(async () => {
  syncs = 0;
  isBroken = false;
  reported = [];
  fs = new CrashFileSystem(new Map(), {
    before: (operation) => {
      if (operation === 'sync') syncs += 1;
      if (operation === 'sync' && isBroken) throw Object.assign(new Error('EIO'), { code: 'EIO' });
    },
  });
  log = await open();
});

function open(): Promise<SegmentLog> {
  return SegmentLog.open({
    dir: '/log',
    fs,
    segment_bytes: 256 * 1024 * 1024,
    signal,
    onDurable: (records, places) => {
      for (const [at, each] of records.entries()) {
        const { segment, offset } = places[at]!;
        reported.push({ key: each.id[0]!, segment, offset, record: each });
      }
      const { position, seq } = log.durable;
      const last = places.at(-1)!;
      assert.ok(position.segment === last.segment && position.offset > last.offset && seq >= last.seq);
    },
  });
}

test('a durable append is reported before it resolves, with its payload', async () => {
  const append = log.append([record(1)], signal).then(() => [...keys()]);
  assert.deepEqual(keys(), []);
  assert.deepEqual(await append, [1]);
  assert.equal(reported[0]!.record.payload![0], 1);
});

test('appends that do not wait for a sync are reported by the sync that covers them, in order, without payload', async () => {
  await log.append([record(1)], signal, { durable: false });
  await log.append([record(2), record(3)], signal, { durable: false });
  assert.deepEqual(keys(), []);
  assert.equal(log.durable.position.offset, 0);
  await log.append([record(4)], signal);
  assert.deepEqual(keys(), [1, 2, 3, 4]);
  assert.equal(reported[0]!.record.payload, undefined);
  assert.equal(reported[0]!.record.payload_bytes, 10);
  await log.append([record(5)], signal, { durable: false });
  await log.sync(signal);
  assert.deepEqual(keys(), [1, 2, 3, 4, 5]);
});

test('an append that does not wait for a sync resolves before the sync of its batch', async () => {
  await log.append([record(1)], signal);
  const order: string[] = [];
  const durable = log.append([record(2)], signal).then(() => order.push('synced'));
  const lazy = log.append([record(3)], signal, { durable: false }).then(() => order.push('written'));
  await Promise.all([durable, lazy]);
  assert.equal(log.stats.batches_total, 2, 'both are in one batch');
  assert.deepEqual(order, ['written', 'synced']);
});

test('an append that does not wait for a sync succeeds even if the sync of its batch fails', async () => {
  await log.append([record(1)], signal);
  isBroken = true;
  const durable = log.append([record(2)], signal);
  const lazy = log.append([record(3)], signal, { durable: false });
  await assert.rejects(durable);
  await lazy;
  assert.deepEqual(keys(), [1]);
});

test('records whose sync failed are never reported', async () => {
  await log.append([record(1)], signal);
  await log.append([record(2)], signal, { durable: false });
  const before = log.durable;
  isBroken = true;
  await assert.rejects(log.append([record(3)], signal));
  isBroken = false;
  assert.deepEqual(log.durable, before);
  await new Promise((resolve) => setTimeout(resolve, 120));
  await log.append([record(4)], signal);
  assert.deepEqual(keys(), [1, 4]);
});

test('a new segment makes the records of the last one durable', async () => {
  await log.append([record(1)], signal, { durable: false });
  log.rotate();
  await log.append([record(2)], signal, { durable: false });
  assert.deepEqual(keys(), [1]);
  assert.deepEqual(log.durable.position, { segment: 2, offset: 0 });
});

test('the log syncs by itself when more than 4096 records wait', async () => {
  const before = syncs;
  const some = Array.from({ length: 2048 }, () => record(7, 0));
  await log.append(some, signal, { durable: false });
  await log.append(some, signal, { durable: false });
  assert.equal(syncs, before);
  await log.append([record(8)], signal, { durable: false });
  assert.equal(reported.length, 4097);
});

test('the log syncs by itself when more than 64 MiB wait', async () => {
  const before = syncs;
  const large = record(7, 16 * 1024 * 1024);
  for (let turn = 0; turn < 3; turn++) await log.append([large], signal, { durable: false });
  assert.equal(syncs, before);
  await log.append([large], signal, { durable: false });
  assert.equal(reported.length, 4);
});

test('a log that is opened from the end of the durable part continues there', async () => {
  await log.append([record(1)], signal);
  await log.append([record(2)], signal, { durable: false });
  const { position, seq } = log.durable;
  const replayed: number[] = [];
  const again = await SegmentLog.open({
    dir: '/log',
    fs,
    signal,
    from: position,
    seq_known: seq,
    onRecord: (head) => void replayed.push(head.id[0]!),
  });
  assert.deepEqual(replayed, [2]);
  assert.equal(again.durable.seq, 2);
  assert.ok(again.durable.position.offset > position.offset);
  await again.close();
});
