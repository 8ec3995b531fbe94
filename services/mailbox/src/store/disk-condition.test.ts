/** The condition of the disk: messages are refused at the reserve, and `problem` agrees with the refusals. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { NEVER } from '@ron/kernel';
import { MemoryDisk, Reserve } from '@ron/log';
import { DiskCondition, type DiskEvent } from './disk-condition.ts';
import { messageOf, openNaive } from './testing/make.ts';

const MIB = 1024 * 1024;
/** The record of an empty message. */
const SMALLEST = 128;

async function conditionWith(over_reserve_bytes: number) {
  const room = { total_bytes: 16 * MIB, free_bytes: MIB + over_reserve_bytes };
  const reserve = new Reserve(async () => room);
  await reserve.measure();
  assert.equal(reserve.bytes, MIB);
  const events: DiskEvent[] = [];
  return { condition: new DiskCondition(reserve, (event) => events.push(event)), reserve, room, events };
}

test('the smallest record of a message has the assumed size', async () => {
  const { log } = await openNaive(new MemoryDisk(16 * MIB));
  await log.appendMessages([messageOf('a', 1, 0)], NEVER);
  const before = log.segments.files.totals().bytes;
  await log.appendMessages([messageOf('a', 1, 0)], NEVER);
  assert.equal(log.segments.files.totals().bytes - before, SMALLEST);
  await log.close();
});

test('[mailbox I-10] with room for the smallest message there is no problem; with one byte less there is', async () => {
  for (const [bytes, problem] of [
    [SMALLEST, undefined],
    [SMALLEST - 1, 'the disk is full'],
    [0, 'the disk is full'],
    [-1, 'the disk is full'],
  ] as const) {
    const { condition } = await conditionWith(bytes);
    assert.equal(condition.problem, problem, `${bytes} bytes over the reserve`);
    assert.equal(condition.refusal(SMALLEST)?.message, problem);
  }
});

test('a refused size is a problem until it fits, and is reported once', async () => {
  const { condition, reserve, room, events } = await conditionWith(1000);
  assert.equal(condition.refusal(1000), undefined);
  assert.equal(condition.problem, undefined);
  for (let n = 0; n < 3; n++) assert.equal(condition.refusal(1001)?.code, 'storage_full');
  assert.equal(condition.problem, 'the disk is full');
  room.free_bytes += 1;
  await reserve.measure();
  assert.equal(condition.problem, undefined);
  assert.deepEqual(events, [{ kind: 'disk full', problem: 'the disk is full' }]);
  room.free_bytes -= 1;
  await reserve.measure();
  assert.equal(condition.problem, undefined, 'smaller messages fit');
  condition.refusal(1001);
  assert.equal(events.length, 2);
});

test('[mailbox I-10] concurrent sends do not use the same space: the reserve is left alone', async () => {
  const disk = new MemoryDisk(32 * MIB);
  const { log } = await openNaive(disk, { segment_bytes: 4 * MIB });
  const sends = Array.from({ length: 64 }, () => log.appendMessages([messageOf('a', 1, MIB / 2)], NEVER));
  const results = await Promise.allSettled(sends);
  const stored = results.filter(({ status }) => status === 'fulfilled').length;
  assert.ok(stored > 16 && stored < 64, `${stored} stored`);
  const { free_bytes } = await disk.room();
  assert.ok(free_bytes >= log.reserve.bytes - MIB / 16, `${free_bytes} bytes are free`);
  await log.close();
});
