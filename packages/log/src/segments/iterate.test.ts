/** A log as a queue: records are read in order from any position, and the oldest are removed. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import type { Position, RecordInput } from './record.ts';
import { SegmentLog, type Damage } from './segment-log.ts';
import { CrashFileSystem } from '../testing/index.ts';

const { signal } = new AbortController();
const START: Position = { segment: 0, offset: 0 };

const record = (key: number, bytes = 100): RecordInput => ({
  type: 1,
  id: Uint8Array.of(key),
  payload: Buffer.alloc(bytes, key),
  meta: Buffer.from(`meta ${key}`),
});

const open = (fs: CrashFileSystem, segment_bytes = 1024): Promise<SegmentLog> =>
  SegmentLog.open({ dir: '/log', fs, segment_bytes, signal });

async function keysFrom(log: SegmentLog, from: Position, damage: Damage[] = []): Promise<number[]> {
  const keys: number[] = [];
  for await (const { head, payload, meta } of log.iterate(from, signal, (each) => void damage.push(each))) {
    const key = head.id[0]!;
    assert.ok(payload.every((byte) => byte === key));
    assert.equal(Buffer.from(meta).toString(), `meta ${key}`);
    keys.push(key);
  }
  return keys;
}

test('records come in order across segments, and from the end of any of them', async () => {
  const log = await open(new CrashFileSystem());
  const keys = Array.from({ length: 30 }, (_, at) => at + 1);
  for (const key of keys) await log.append([record(key)], signal);
  assert.ok(log.files.numbers().length > 5);
  assert.deepEqual(await keysFrom(log, START), keys);
  const all = [];
  for await (const each of log.iterate(START, signal)) all.push(each);
  for (const { head, position, next } of all) {
    assert.deepEqual(await keysFrom(log, position), keys.slice(head.id[0]! - 1));
    assert.deepEqual(await keysFrom(log, next), keys.slice(head.id[0]));
  }
  assert.deepEqual(await keysFrom(log, log.durable.position), []);
  await log.close();
});

test('only durable records are read, and those that become durable meanwhile', async () => {
  const log = await open(new CrashFileSystem(), 64 * 1024);
  await log.append([record(1)], signal);
  await log.append([record(2)], signal, { durable: false });
  assert.deepEqual(await keysFrom(log, START), [1]);
  const records = log.iterate(START, signal);
  assert.equal((await records.next()).value!.head.id[0], 1);
  await log.sync(signal);
  assert.equal((await records.next()).value!.head.id[0], 2);
  assert.ok((await records.next()).done);
  await log.close();
});

test('large logs are read in steps, for any record sizes', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(fc.nat(900_000), { maxLength: 12 }), async (sizes) => {
      const log = await open(new CrashFileSystem(), 4 * 1024 * 1024);
      for (const [at, bytes] of sizes.entries()) await log.append([record(at, bytes)], signal);
      assert.deepEqual(await keysFrom(log, START), [...sizes.keys()]);
      await log.close();
    }),
    { numRuns: 10 },
  );
});

test('a damaged record is reported and skipped', async () => {
  const disk = new CrashFileSystem();
  const log = await open(disk, 64 * 1024);
  for (const key of [1, 2, 3]) await log.append([record(key)], signal);
  const file = await disk.open(log.files.path(1), 'write');
  await file.write([Buffer.from('rot')], 192 + 80);
  const damage: Damage[] = [];
  assert.deepEqual(await keysFrom(log, START, damage), [1, 3]);
  assert.deepEqual(damage, [{ segment: 1, offset: 192, bytes: 192, what: 'gap' }]);
  await log.close();
});

test('an iteration ends by its signal', async () => {
  const log = await open(new CrashFileSystem());
  await log.append([record(1)], signal);
  const stop = new AbortController();
  stop.abort(new Error('enough'));
  await assert.rejects(log.iterate(START, stop.signal).next(), /enough/);
  await log.close();
});

test('a segment that is removed while a reader is before it is skipped', async () => {
  const log = await open(new CrashFileSystem());
  for (let key = 1; key <= 20; key++) await log.append([record(key)], signal);
  const records = log.iterate(START, signal);
  assert.equal((await records.next()).value!.head.id[0], 1);
  await log.truncateBefore(log.durable.position, signal);
  const rest = [];
  for await (const { head } of records) rest.push(head.id[0]!);
  assert.equal(rest.at(-1), 20);
  assert.ok(rest.length < 19);
  await log.close();
});

test('truncateBefore removes whole segments before a position, and survives a crash at any point', async () => {
  const disk = new CrashFileSystem();
  const log = await open(disk);
  for (let key = 1; key <= 20; key++) await log.append([record(key)], signal);
  const all = [];
  for await (const each of log.iterate(START, signal)) all.push(each);
  const cut = all[12]!.position;
  const before = disk.operations;
  await log.truncateBefore(cut, signal);
  assert.equal(log.files.numbers()[0], cut.segment);
  const kept = await keysFrom(log, START);
  assert.deepEqual(
    kept,
    Array.from({ length: kept.length }, (_, at) => 21 - kept.length + at),
  );
  assert.ok(kept.includes(13) && kept.length < 20);
  for (let point = before; point <= disk.operations; point++) {
    for (const image of disk.imagesAt(point, 50, Math.random)) {
      const again = await open(new CrashFileSystem(image));
      const left = await keysFrom(again, START);
      // Always a suffix of the records, without a gap.
      assert.deepEqual(
        left,
        Array.from({ length: left.length }, (_, at) => 21 - left.length + at),
      );
      assert.ok(left.length >= kept.length);
      await again.close();
    }
  }
  await log.close();
});

test('record numbers continue after everything was truncated', async () => {
  const disk = new CrashFileSystem();
  const log = await open(disk);
  for (let key = 1; key <= 10; key++) await log.append([record(key)], signal);
  log.rotate();
  await log.sync(signal);
  await log.truncateBefore({ segment: 1000, offset: 0 }, signal);
  const last = log.files.numbers();
  await log.close();
  const again = await open(disk);
  const [place] = await again.append([record(11)], signal);
  assert.equal(place!.seq, 11);
  assert.ok(place!.segment >= last.at(-1)!);
  await again.close();
});

test('ids of 0 to 32 bytes are preserved, and those of 32 bytes keep their format on disk', async () => {
  const disk = new CrashFileSystem();
  const log = await open(disk, 64 * 1024);
  const ids = Array.from({ length: 33 }, (_, bytes) => Buffer.alloc(bytes, 0xa0 + bytes));
  for (const id of ids) await log.append([{ type: 1, id, payload: Buffer.from('x') }], signal);
  const found = [];
  for await (const { head } of log.iterate(START, signal)) found.push(Buffer.from(head.id));
  assert.deepEqual(found, ids);
  const bytes = Buffer.alloc(128);
  await log.files.read(1, bytes, 128, 32 * 128);
  assert.equal(bytes[5], 1, 'the version byte of an id of 32 bytes');
  assert.throws(
    () => void log.append([{ type: 1, id: Buffer.alloc(33), payload: Buffer.alloc(0) }], signal),
    /at most 32/,
  );
  await log.close();
});
