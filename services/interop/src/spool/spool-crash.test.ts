/** Every crash point of small histories: an acknowledged delivery is there, in order, and a settled one stays settled once synced. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { NEVER } from '@ron/kernel';
import { CrashFileSystem } from '@ron/log/testing';
import { deliveryOf, openSpool, takeAll, ulidOf } from './testing/make.ts';

/** So small that segments are moved. */
const LIMITS = { bytes_max: 14 * 1024, segment_bytes: 2048 };
const IMAGES_MAX = 60;

interface Noted {
  readonly id: string;
  /** Operations of the disk when the call was answered, or began. */
  readonly at: number;
}

interface History {
  readonly appended: readonly Noted[];
  readonly settled: readonly Noted[];
}

/** Appends groups of deliveries of two providers; after each, settles those whose number is even, and maintains. */
async function write(disk: CrashFileSystem, groups: readonly number[]): Promise<History> {
  const { spool } = await openSpool({ fs: disk, ...LIMITS });
  const appended: Noted[] = [];
  const settled: Noted[] = [];
  let n = 0;
  const append = async (mine: number): Promise<void> => {
    assert.notEqual(await spool.append(deliveryOf(mine, mine % 3 === 0 ? 'a' : 'b', 400), NEVER), 'full');
    appended.push({ id: ulidOf(mine), at: disk.operations });
  };
  for (const count of groups) {
    await Promise.all(Array.from({ length: count }, () => append(++n)));
    for (let mine = 1; mine <= n; mine++) {
      if (mine % 4 === 0 || settled.some(({ id }) => id === ulidOf(mine))) continue;
      settled.push({ id: ulidOf(mine), at: disk.operations });
      spool.delivered(ulidOf(mine));
    }
    for (let times = 0; times < 3; times++) await spool.maintain(NEVER);
  }
  await spool.close();
  return { appended, settled };
}

async function checkAll(disk: CrashFileSystem, { appended, settled }: History): Promise<number> {
  let images = 0;
  let state = 7;
  const random = (): number => (state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0) / 2 ** 32;
  for (let point = 0; point <= disk.operations; point++)
    for (const image of disk.imagesAt(point, IMAGES_MAX, random)) {
      images += 1;
      const { spool } = await openSpool({ fs: new CrashFileSystem(image), ...LIMITS });
      const found = (await takeAll(spool)).map(({ id, provider }) => ({ id, provider }));
      for (const { id, at } of appended) {
        const isSettled = settled.some((each) => each.id === id && each.at <= point);
        if (at <= point && !isSettled)
          assert.ok(
            found.some((each) => each.id === id),
            `${id} is lost after operation ${point}`,
          );
      }
      assert.equal(new Set(found.map(({ id }) => id)).size, found.length, 'each delivery is there once');
      for (const name of ['a', 'b']) {
        const ids = found.filter(({ provider }) => provider === name).map(({ id }) => id);
        assert.deepEqual(ids, ids.toSorted(), `the order of ${name}`);
      }
      await spool.close();
    }
  return images;
}

test('no accepted delivery is lost or out of order at any crash point, even while segments are moved', async () => {
  const disk = new CrashFileSystem();
  const history = await write(disk, [3, 1, 4, 2, 3, 2, 1]);
  const images = await checkAll(disk, history);
  assert.ok(images > 100, `only ${images} disks were tried`);
});

test('a clean stop keeps every settled delivery settled', async () => {
  const disk = new CrashFileSystem();
  await write(disk, [3, 1, 4]);
  const { spool } = await openSpool({ fs: new CrashFileSystem(disk.files()), ...LIMITS });
  assert.deepEqual((await takeAll(spool)).map(({ id }) => id).toSorted(), [ulidOf(4), ulidOf(8)]);
  await spool.close();
});
