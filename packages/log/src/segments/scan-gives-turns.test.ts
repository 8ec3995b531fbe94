/** A scan gives the event loop a turn after a bounded amount of work, even if the disk answers at once. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { RecordInput } from './record.ts';
import { SegmentLog } from './segment-log.ts';
import { CrashFileSystem } from '../testing/index.ts';

const RECORDS = 2000;
/** A record costs at least as much as 8 KiB, and a turn comes after 1 MiB. */
const RECORDS_PER_TURN_MAX = 128;
const MIB = 1024 * 1024;

const record = (at: number, bytes = 10): RecordInput => ({
  type: 1,
  id: new Uint8Array(32).fill(at & 0xff),
  payload: new Uint8Array(bytes).fill(at & 0xff),
});

/** Calls `onTurn` in every turn of the event loop while `use` runs. */
async function withTurns<T>(onTurn: () => void, use: () => Promise<T>): Promise<T> {
  const again = (): void => {
    onTurn();
    next = setImmediate(again);
  };
  let next = setImmediate(again);
  try {
    return await use();
  } finally {
    clearImmediate(next);
  }
}

async function openLog(fs: CrashFileSystem, records: readonly RecordInput[]): Promise<SegmentLog> {
  const { signal } = new AbortController();
  const log = await SegmentLog.open({ dir: '/log', fs, signal });
  await log.append(records, signal);
  return log;
}

const small = Array.from({ length: RECORDS }, (_, at) => record(at));

test('replay of many small records', async () => {
  const fs = new CrashFileSystem();
  await (await openLog(fs, small)).close();
  let [count, since_turn, since_turn_max] = [0, 0, 0];
  const onRecord = (): void => {
    count += 1;
    since_turn_max = Math.max(since_turn_max, ++since_turn);
  };
  const { signal } = new AbortController();
  const onTurn = (): void => void (since_turn = 0);
  const log = await withTurns(onTurn, () => SegmentLog.open({ dir: '/log', fs, signal, onRecord }));
  await log.close();
  assert.equal(count, RECORDS);
  // [storage I-7]
  assert.ok(since_turn_max <= RECORDS_PER_TURN_MAX, `${since_turn_max} records in one turn`);
});

test('a scan over damaged bytes', async () => {
  const fs = new CrashFileSystem();
  const log = await openLog(fs, [record(1), record(2, 8 * MIB), record(3)]);
  fs.damage(log.files.path(1), (bytes) => bytes.fill(0, 128, 128 + 8 * MIB));
  let turns = 0;
  const turnsAt: number[] = [];
  const onRecord = (): void => void turnsAt.push(turns);
  const { signal } = new AbortController();
  const onTurn = (): void => void (turns += 1);
  await withTurns(onTurn, () => log.scanSegment(1, onRecord, () => undefined, signal));
  await log.close();
  assert.equal(turnsAt.length, 2);
  assert.ok(turnsAt[1]! - turnsAt[0]! >= 7, `${turnsAt[1]! - turnsAt[0]!} turns for 8 MiB`);
});

test('a scan is cancelled between two records of one read', async () => {
  const log = await openLog(new CrashFileSystem(), small);
  const stop = new AbortController();
  let count = 0;
  const onTurn = (): void => {
    if (count > 0) stop.abort(new Error('stopped'));
  };
  const onRecord = (): void => void (count += 1);
  const scanned = withTurns(onTurn, () => log.scanSegment(1, onRecord, () => undefined, stop.signal));
  await assert.rejects(scanned, /stopped/);
  assert.ok(count < RECORDS);
  await log.close();
});
