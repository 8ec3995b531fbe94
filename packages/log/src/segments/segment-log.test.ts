/** The log in a real directory: operations, failures of the disk, and their errors. */
import assert from 'node:assert/strict';
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, test } from 'node:test';
import { isRonError } from '@ron/kernel';
import { SegmentLog, type Damage, type SegmentLogInit } from './segment-log.ts';
import { encodeHeader, recordBytes, type RecordHead } from './record.ts';
import { CrashFileSystem, type Faults } from '../testing/index.ts';

const signal = new AbortController().signal;
let dir: string;
beforeEach(() => void (dir = mkdtempSync(join(tmpdir(), 'ron-log-'))));
afterEach(() => rmSync(dir, { recursive: true }));

const record = (key: number, bytes = 100) => ({
  type: 1,
  id: new Uint8Array(32).fill(key),
  payload: new Uint8Array(bytes).fill(key),
  meta: Buffer.from(`meta ${key}`),
});

interface Opened {
  log: SegmentLog;
  heads: RecordHead[];
  damage: Damage[];
}

async function open(init: Partial<SegmentLogInit> = {}): Promise<Opened> {
  const heads: RecordHead[] = [];
  const damage: Damage[] = [];
  const log = await SegmentLog.open({
    dir,
    segment_bytes: 4096,
    signal,
    onRecord: (head) => void heads.push(head),
    onDamage: (each) => damage.push(each),
    ...init,
  });
  return { log, heads, damage };
}

test('records have the same payload, meta and number after a reopen, across segments', async () => {
  const { log } = await open();
  const places = [];
  for (let key = 1; key <= 60; key++) places.push((await log.append([record(key)], signal))[0]!);
  await log.close();
  assert.ok(readdirSync(join(dir, 'segments')).length > 1);
  const { log: again, heads } = await open();
  assert.deepEqual(
    heads.map((head) => [head.id[0], head.seq]),
    places.map((place, index) => [index + 1, place.seq]),
  );
  const last = await again.read(places[59]!, 100, 7);
  assert.equal(Buffer.from(last!.meta).toString(), 'meta 60');
  assert.deepEqual(Buffer.from(last!.payload), Buffer.alloc(100, 60));
  await again.close();
});

test('a reopen from a known position replays only later records, and numbers continue', async () => {
  const { log } = await open();
  await log.append([record(1)], signal);
  const { position: from, seq: seq_known } = log.durable;
  await log.append([record(2)], signal);
  await log.close();
  const { log: again, heads } = await open({ from, seq_known });
  assert.deepEqual(
    heads.map((head) => head.id[0]),
    [2],
  );
  assert.deepEqual(
    (await again.append([record(3)], signal)).map((each) => each.seq),
    [3],
  );
  await again.close();
});

test('appends that arrive together share a sync', async () => {
  const { log } = await open({ segment_bytes: 1 << 20 });
  await Promise.all(Array.from({ length: 200 }, (_, key) => log.append([record(key % 200)], signal)));
  assert.ok(log.stats.batches_total <= 3, `${log.stats.batches_total} syncs for 200 appends`);
  await log.close();
});

test('a batch has at most batch_records_max records, or one larger append', async () => {
  const { log } = await open({ segment_bytes: 1 << 20, batch_records_max: 4 });
  const records = (count: number) => Array.from({ length: count }, (_, index) => record(index));
  await Promise.all([2, 2, 1, 9, 3].map((count) => log.append(records(count), signal)));
  assert.equal(log.stats.batches_total, 4);
  await log.close();
});

test('an append counts as many records as it states', async () => {
  const { log } = await open({ segment_bytes: 1 << 20, batch_records_max: 4 });
  await Promise.all([4, 4, 1, 9, 3].map((count) => log.append([record(count)], signal, { count })));
  assert.equal(log.stats.batches_total, 5);
  await log.close();
});

/** The first segment of a log on this disk. */
function segmentIn(fs: CrashFileSystem): string {
  return [...fs.files().keys()].toSorted()[0]!;
}

test('a torn tail is cut and reported; later appends follow it', async () => {
  const fs = new CrashFileSystem();
  const first = await open({ fs, dir: '/log' });
  await first.log.append([record(1)], signal);
  await first.log.append([record(2)], signal);
  await first.log.close();
  fs.damage(segmentIn(fs), (bytes) => bytes.subarray(0, bytes.length - 70));
  const { log, heads, damage } = await open({ fs, dir: '/log' });
  assert.deepEqual(
    heads.map((head) => head.id[0]),
    [1],
  );
  assert.deepEqual(
    damage.map((each) => each.what),
    ['torn tail'],
  );
  await log.append([record(3)], signal);
  await log.close();
  const again = await open({ fs, dir: '/log' });
  assert.deepEqual(
    again.heads.map((head) => head.id[0]),
    [1, 3],
  );
  assert.deepEqual(again.damage, []);
});

test('a flipped byte in a header or a body loses only that record, and is reported', async () => {
  for (const at of [5, 300, 500]) {
    const fs = new CrashFileSystem();
    const first = await open({ fs, dir: '/log' });
    for (const key of [1, 2, 3, 4]) await first.log.append([record(key)], signal);
    await first.log.close();
    fs.damage(segmentIn(fs), (bytes) => {
      bytes[at]! ^= 1;
      return bytes;
    });
    const { heads, damage } = await open({ fs, dir: '/log' });
    assert.equal(heads.length, 3, `byte ${at}`);
    assert.equal(damage.length, 1);
    assert.equal(damage[0]!.what, 'gap');
  }
});

test('bytes inside of a torn or damaged payload never become records', async () => {
  // A client stores bytes that imitate a record with a higher number than all others.
  const forged = Buffer.alloc(recordBytes(100, 0));
  const header = { seq: 1_000_000, time_s: 0, salt: 0 };
  encodeHeader({ type: 7, id: new Uint8Array(32), payload: forged.subarray(64, 164) }, header, forged, 0);
  for (const harm of ['torn', 'rotten'] as const) {
    const fs = new CrashFileSystem();
    const first = await open({ fs, dir: '/log' });
    await first.log.append([{ type: 1, id: new Uint8Array(32), payload: Buffer.concat([forged, forged]) }], signal);
    if (harm === 'rotten') await first.log.append([record(2)], signal);
    await first.log.close();
    fs.damage(segmentIn(fs), (bytes) => {
      if (harm === 'torn') return bytes.subarray(0, 64 + forged.length + 100);
      bytes[64 + 2 * forged.length - 1]! ^= 1;
      return bytes;
    });
    const { heads } = await open({ fs, dir: '/log' });
    assert.ok(
      heads.every((head) => head.type !== 7),
      `${harm}: a payload was replayed as a record`,
    );
    assert.equal(heads.length, harm === 'torn' ? 0 : 1);
  }
});

test('a record that moves keeps its number and its time', async () => {
  const { log } = await open();
  const [first] = await log.append([record(1)], signal);
  assert.ok(Math.abs(first!.time_s - Date.now() / 1000) < 60);
  await log.append([{ ...record(1), seq: first!.seq, time_s: 1234 }], signal);
  const [next] = await log.append([record(2)], signal);
  assert.equal(next!.seq, first!.seq + 1);
  await log.close();
  const { log: again, heads } = await open();
  assert.deepEqual(
    heads.map((head) => [head.seq, head.time_s]),
    [
      [first!.seq, first!.time_s],
      [first!.seq, 1234],
      [next!.seq, next!.time_s],
    ],
  );
  await again.close();
});

/** A disk with injected failures. */
function failing(): { fs: CrashFileSystem; fail: (operation: string, code: string) => void; heal: () => void } {
  let broken: { operation: string; code: string } | undefined;
  const faults: Faults = {
    before: (operation) => {
      if (broken?.operation === operation) throw Object.assign(new Error(broken.code), { code: broken.code });
    },
  };
  return {
    fs: new CrashFileSystem(new Map(), faults),
    fail: (operation, code) => void (broken = { operation, code }),
    heal: () => void (broken = undefined),
  };
}

/** Appends until the log no longer refuses because of the last failure. */
async function appendWhenReady(log: SegmentLog, key: number): Promise<void> {
  for (let tries = 0; ; tries++) {
    try {
      await log.append([record(key)], signal);
      return;
    } catch (error) {
      if (tries > 200) throw error;
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
  }
}

test('a failed sync fails the append, retires the segment, and the next append goes to a new one', async () => {
  const { fs, fail, heal } = failing();
  const { log } = await open({ fs, dir: '/log' });
  await log.append([record(1)], signal);
  fail('sync', 'EIO');
  await assert.rejects(log.append([record(2)], signal), (error) => isRonError(error, 'not_ready'));
  heal();
  await appendWhenReady(log, 3);
  assert.deepEqual(log.files.numbers(), [1, 2]);
  await log.close();
  const { heads } = await open({ fs, dir: '/log' });
  const keys = heads.map((head) => head.id[0]);
  assert.ok(keys.includes(1) && keys.includes(3));
});

test('a full disk answers storage_full, keeps its segment, and accepts appends once there is room', async () => {
  const { fs, fail, heal } = failing();
  const { log } = await open({ fs, dir: '/log' });
  await log.append([record(1)], signal);
  fail('write', 'ENOSPC');
  await assert.rejects(log.append([record(2)], signal), (error) => isRonError(error, 'storage_full'));
  // Refused at once for a while after the failure, which spares a full disk.
  await assert.rejects(log.append([record(2)], signal), (error) => isRonError(error, 'storage_full'));
  heal();
  await appendWhenReady(log, 3);
  assert.deepEqual(log.files.numbers(), [1]);
  await log.close();
});

test('a read-only disk is reported as such', async () => {
  const { fs, fail } = failing();
  const { log } = await open({ fs, dir: '/log' });
  fail('create', 'EROFS');
  await assert.rejects(log.append([record(1)], signal), /read-only \(EROFS\)/);
  await log.close();
});

test('appends beyond the queue limit are refused with busy', async () => {
  const { log } = await open({ segment_bytes: 1 << 20, queue_bytes_max: 1000 });
  const outcomes = await Promise.allSettled([1, 2, 3, 4, 5, 6].map((key) => log.append([record(key, 300)], signal)));
  assert.ok(outcomes.some((each) => each.status === 'fulfilled'));
  const refused = outcomes.filter((each) => each.status === 'rejected');
  assert.ok(refused.length > 0 && refused.every((each) => isRonError(each.reason, 'busy')));
  await log.close();
  await assert.rejects(log.append([record(9)], signal), (error) => isRonError(error, 'closed'));
});

test('an append that is cancelled while it waits was not written', async () => {
  const { log, heads } = await open();
  const cancel = new AbortController();
  const kept = log.append([record(1)], signal);
  const cancelled = log.append([record(2)], cancel.signal);
  cancel.abort(new Error('gone'));
  await assert.rejects(cancelled, /gone/);
  await kept;
  await log.close();
  const again = await open();
  assert.deepEqual(
    again.heads.map((head) => head.id[0]),
    [1],
  );
  assert.deepEqual(heads, []);
  await again.log.close();
});

test('a segment is removed when its last lease is released', async () => {
  const { log } = await open();
  await log.append([record(1)], signal);
  log.rotate();
  await log.append([record(2)], signal);
  const lease = log.files.lease(1);
  let removed = false;
  const removal = log.files.remove(1).then(() => (removed = true));
  await log.append([record(3)], signal);
  assert.equal(removed, false);
  lease[Symbol.dispose]();
  await removal;
  assert.deepEqual(
    readdirSync(join(dir, 'segments')).map((name) => name.slice(0, 8)),
    ['00000002'],
  );
  await log.close();
});

test('a segment that could not be removed is still known, and can be removed later', async () => {
  const { fs, fail, heal } = failing();
  const { log } = await open({ fs, dir: '/log' });
  const [place] = await log.append([record(1)], signal);
  log.rotate();
  await log.sync(signal);
  fail('remove', 'EIO');
  await assert.rejects(log.remove(1), /EIO/);
  assert.deepEqual(log.files.numbers(), [1, 2]);
  assert.ok(await log.read(place!, 100, 6));
  heal();
  await log.remove(1);
  assert.deepEqual(log.files.numbers(), [2]);
  await assert.rejects(log.remove(2), /being written/);
  await log.close();
});

test('`beforeRemove` runs before the removal of each segment; if it rejects, the segment stays', async () => {
  const removed: (readonly [segment: number, files: number])[] = [];
  let isFailing = false;
  const { log } = await open({
    segment_bytes: 256,
    beforeRemove: async (segment) => {
      await Promise.resolve();
      removed.push([segment, readdirSync(join(dir, 'segments')).length]);
      if (isFailing) throw new Error('the mark cannot be written');
    },
  });
  for (let key = 1; key <= 5; key++) await log.append([record(key)], signal);
  await log.truncateBefore({ segment: 3, offset: 0 }, signal);
  await log.remove(3);
  assert.deepEqual(removed, [
    [1, 5],
    [2, 4],
    [3, 3],
  ]);
  isFailing = true;
  await assert.rejects(log.remove(4), /the mark/);
  assert.deepEqual(log.files.numbers(), [4, 5]);
  await log.close();
});

test('a segment that waits for its last reader is not found by other callers', async () => {
  const { log } = await open();
  const [place] = await log.append([record(1)], signal);
  log.rotate();
  await log.sync(signal);
  const lease = log.files.lease(1);
  const removal = log.remove(1);
  assert.ok(!log.files.has(1));
  await assert.rejects(log.read(place!, 100, 6), (error) => isRonError(error, 'not_found'));
  lease[Symbol.dispose]();
  await removal;
  await log.close();
});

test('records that a failed sync did not cover are gone, even for a process that opens the log again', async () => {
  const { fs, fail, heal } = failing();
  const { log } = await open({ fs, dir: '/log' });
  await log.append([record(1)], signal);
  const end = log.durable;
  fail('sync', 'EIO');
  await assert.rejects(log.append([record(2)], signal));
  heal();
  assert.deepEqual(log.durable, end);
  await appendWhenReady(log, 3);
  // The process crashes, then the power fails. Records that the first restart found must survive.
  const { heads } = await open({ fs, dir: '/log' });
  const keys = heads.map((head) => head.id[0]);
  assert.ok(keys.includes(1) && keys.includes(3));
  for (const image of fs.imagesAt(fs.operations, 100, Math.random)) {
    const after = await open({ fs: new CrashFileSystem(image), dir: '/log' });
    const left = after.heads.map((head) => head.id[0]);
    assert.ok(
      keys.every((key) => left.includes(key)),
      'the next crash lost replayed records',
    );
  }
});

test('records that wait for a sync are made durable by a replay', async () => {
  const { fs } = failing();
  const { log } = await open({ fs, dir: '/log' });
  await log.append([record(1)], signal, { durable: false });
  // Only the process crashes.
  const { heads } = await open({ fs, dir: '/log' });
  assert.equal(heads.length, 1);
  for (const image of fs.imagesAt(fs.operations, 100, Math.random)) {
    const after = await open({ fs: new CrashFileSystem(image), dir: '/log' });
    assert.equal(after.heads.length, 1, 'the next crash lost replayed records');
  }
});

test('a sync of an empty log creates no file', async () => {
  const { log } = await open();
  await log.sync(signal);
  await log.close();
  assert.deepEqual(readdirSync(join(dir, 'segments')), []);
});

test('a read-only directory can be opened and read', async () => {
  const { fs, fail } = failing();
  const first = await open({ fs, dir: '/log' });
  const [place] = await first.log.append([record(1)], signal);
  await first.log.close();
  fail('open for writing', 'EROFS');
  const { log } = await open({ fs, dir: '/log' });
  assert.ok(await log.read(place!, 100, 6));
  await assert.rejects(log.append([record(2)], signal), /read-only \(EROFS\)/);
  await log.close();
});

test('a record that does not fit a segment is refused', async () => {
  const { log } = await open();
  await assert.rejects(log.append([record(1, 5000)], signal), (error) => isRonError(error, 'payload_too_large'));
  await log.close();
});
