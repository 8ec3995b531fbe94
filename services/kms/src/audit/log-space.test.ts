import assert from 'node:assert/strict';
import { test } from 'node:test';
import { MemoryDisk, type FileSystem } from '@ron/log';
import { LogSpace, type LogSpaceInit } from './log-space.ts';

const MIB = 1024 * 1024;

/** A disk of 32 MiB, with a reserve of 2 MiB, on which so much is free. */
async function spaceOf(free_bytes: number, init: Partial<LogSpaceInit> = {}) {
  const room = { free_bytes, total_bytes: 32 * MIB };
  const fs: FileSystem = Object.assign(new MemoryDisk(MIB), { room: () => Promise.resolve({ ...room }) });
  const log = { fs, dir: '/log', bytes: 0 };
  const space = new LogSpace({ log, reserve_bytes: 64 * MIB, ...init });
  await space.load();
  return { space, room, log };
}

test('only essential entries use the reserve, and its last part is for the log itself', async () => {
  const { space } = await spaceOf(2 * MIB + 2000);
  assert.equal(space.refusal('ordinary', 'acme', 1000), undefined);
  assert.match(space.refusal('ordinary', 'acme', 4000)?.message ?? '', /no room|only the reserve/);
  assert.equal(space.refusal('essential', 'acme', 4000), undefined);
  const full = (await spaceOf(2 * MIB)).space;
  assert.match(full.problem ?? '', /only the reserve is left for the audit log \(2048 KiB\).*ron audit prune/);
  assert.equal(full.refusal('ordinary', 'acme', 1)?.code, 'degraded_audit');
  assert.equal(full.refusal('essential', 'acme', 1), undefined);
  const last = (await spaceOf(MIB / 4)).space;
  assert.equal(last.refusal('essential', 'acme', 1)?.code, 'degraded_audit');
  assert.ok((last.refusal('essential', 'acme', 1)?.retry_after_ms ?? 0) > 0);
});

test('while room is scarce, one tenant holds at most as much as is still free', async () => {
  const { space, room } = await spaceOf(10 * MIB);
  const write = (tenant: string): number => {
    let bytes = 0;
    while (space.refusal('ordinary', tenant, 1000) === undefined) {
      space.hold(tenant, 1000);
      space.wrote(1000);
      bytes += 1000;
    }
    return bytes / MIB;
  };
  // 8 MiB are free above the reserve: a half, then a quarter, and so on.
  for (const [tenant, share] of [
    ['a', 4],
    ['b', 2],
    ['c', 1],
  ] as const)
    assert.ok(Math.abs(write(tenant) - share) < 0.1, tenant);
  assert.match(space.refusal('ordinary', 'a', 1000)?.message ?? '', /the share of a in the audit log is used/);
  assert.equal(space.refusal('essential', 'd', 1000), undefined);
  room.free_bytes = 3 * MIB;
  space.forget();
  assert.equal(space.refusal('ordinary', 'a', 1000), undefined, 'a pruning begins a new count');
});

test('reservations count at once, for the share and for the room, and end with the bytes that were written', async () => {
  const { space } = await spaceOf(10 * MIB);
  const [first, second] = [space.reserve('ordinary', 'a', 2 * MIB), space.reserve('ordinary', 'a', 2 * MIB)];
  assert.equal(space.shared_bytes, 4 * MIB);
  assert.throws(() => space.reserve('ordinary', 'a', 1), /share of a/);
  assert.throws(() => space.reserve('ordinary', 'b', 5 * MIB), /no room/);
  first(0);
  assert.equal(space.shared_bytes, 6 * MIB);
  second(MIB);
  assert.equal(space.shared_bytes, 7 * MIB);
  // 1 MiB is held and 7 MiB are free.
  space.reserve('ordinary', 'a', 6 * MIB)(0);
  assert.throws(() => space.reserve('ordinary', 'a', 6 * MIB + 1), /share of a/);
});

test('the counts survive a restart, and end with plenty of room', async () => {
  const { space, room, log } = await spaceOf(10 * MIB);
  space.hold('a', 7 * MIB);
  await space.save();
  const again = new LogSpace({ log, reserve_bytes: 64 * MIB });
  await again.load();
  assert.match(again.refusal('ordinary', 'a', 2 * MIB)?.message ?? '', /share/);
  assert.equal(again.refusal('ordinary', 'b', 2 * MIB), undefined);
  assert.equal(space.isScarce, true);
  const large = new LogSpace({ log, reserve_bytes: MIB / 64 });
  await large.load();
  room.free_bytes = 31 * MIB;
  assert.equal(large.isScarce, false);
  large.hold('b', 1);
  assert.equal(large.refusal('ordinary', 'a', 2 * MIB), undefined);
});

test('audit.bytes_max limits the log on a large disk; an unknown disk limits nothing', async () => {
  const { space, log } = await spaceOf(31 * MIB, { bytes_max: 16 * MIB });
  assert.deepEqual([space.reserve_bytes, space.free_bytes], [MIB, 16 * MIB]);
  log.bytes = 15.5 * MIB;
  assert.equal(space.refusal('ordinary', 'a', 1)?.code, 'degraded_audit');
  assert.equal(space.refusal('essential', 'a', 1), undefined);
  const unknown = new LogSpace({ log: undefined, reserve_bytes: MIB });
  await unknown.load();
  assert.deepEqual([unknown.refusal('ordinary', 'a', 2 ** 50), unknown.problem], [undefined, undefined]);
  unknown.hold('a', 1);
  await unknown.save();
});

test('the number of counts is bounded', async () => {
  const { space, log } = await spaceOf(10 * MIB);
  for (let each = 0; each < 3000; each++) space.hold(`t${each}`, 1000);
  await space.save();
  const again = new LogSpace({ log, reserve_bytes: 64 * MIB });
  await again.load();
  assert.equal(again.refusal('ordinary', 't2999', 7 * MIB)?.code, 'degraded_audit', 'the others share one count');
  assert.equal(again.refusal('ordinary', 't1', 7 * MIB), undefined);
});
