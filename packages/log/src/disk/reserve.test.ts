import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { DiskRoom } from './file-system.ts';
import { Reserve } from './reserve.ts';

const MIB = 1024 * 1024;

const diskOf = (room?: DiskRoom) => (): Promise<DiskRoom | undefined> => Promise.resolve(room && { ...room });

test('the reserve is a sixteenth of a small disk, and 256 MiB of a large one', async () => {
  const small = new Reserve(diskOf({ free_bytes: 16 * MIB, total_bytes: 16 * MIB }));
  await small.measure();
  assert.equal(small.bytes, MIB);
  assert.equal(small.isReached(15 * MIB), false);
  assert.equal(small.isReached(15 * MIB + 1), true);
  const large = new Reserve(diskOf({ free_bytes: 2 ** 40, total_bytes: 2 ** 42 }));
  await large.measure();
  assert.equal(large.bytes, 256 * MIB);
});

test('a reserve can have a smallest size, and leaves half of the disk', async () => {
  const sizes: number[] = [];
  for (const disk of [8, 64, 1024]) {
    const reserve = new Reserve(diskOf({ free_bytes: 0, total_bytes: disk * MIB }), 256 * MIB, 8 * MIB);
    await reserve.measure();
    sizes.push(reserve.bytes / MIB);
  }
  assert.deepEqual(sizes, [4, 8, 64]);
});

test('bytes written since the last measurement count until the next one', async () => {
  const room = { free_bytes: 4 * MIB, total_bytes: 16 * MIB };
  const reserve = new Reserve(diskOf(room));
  await reserve.measure();
  reserve.wrote(2 * MIB);
  room.free_bytes = 2 * MIB;
  assert.equal(reserve.isReached(MIB + 1), true);
  await reserve.measure();
  assert.equal(reserve.isReached(MIB), false);
  room.free_bytes = 8 * MIB;
  assert.equal(reserve.isReached(2 * MIB), true, 'as of the last measurement');
  await reserve.measure();
  assert.equal(reserve.isReached(2 * MIB), false, 'space that was freed');
});

test('a disk that cannot be measured is never refused', async () => {
  for (const disk of [diskOf(), () => Promise.reject(new Error('EIO'))]) {
    const reserve = new Reserve(disk);
    await reserve.measure();
    assert.equal(reserve.isReached(2 ** 50), false);
  }
});

test('a failed measurement does not open the reserve, and the next one counts again', async () => {
  const room = { free_bytes: 0, total_bytes: 16 * MIB };
  let isDown = false;
  const down = (): Promise<never> => Promise.reject(new Error('EIO'));
  const reserve = new Reserve(() => (isDown ? down() : Promise.resolve({ ...room })));
  await reserve.measure();
  isDown = true;
  await reserve.measure();
  assert.equal(reserve.isReached(1), true, 'as of the last measurement');
  isDown = false;
  room.free_bytes = 16 * MIB;
  await reserve.measure();
  assert.equal(reserve.isReached(1), false);
});
