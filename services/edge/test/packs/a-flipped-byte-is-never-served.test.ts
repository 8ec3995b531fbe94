import assert from 'node:assert/strict';
import { open, truncate } from 'node:fs/promises';
import { test } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { isRonError } from '@ron/kernel';
import { bytesOf, eventually } from '@ron/testkit';
import type { OpenPack } from '../../src/packs/pack.ts';
import { tileId } from './hilbert.ts';
import { makePmtiles } from './make-pmtiles.ts';
import { someTiles, testPacks, type TestPacks } from './pack-fixtures.ts';
import { readAllTiles } from './read-pmtiles.ts';

const TILES = someTiles(3, 9000);
/** Metadata fills the first groups, so that leaves and tiles lie in others. */
const FILE = makePmtiles({
  tiles: TILES,
  leaf_entries: 16,
  metadata: { name: 'flip', padding: bytesOf(70_000).toString('hex') },
});
const EXPECTED = readAllTiles(FILE);

const wide = (at: number): number => Number(FILE.readBigUInt64LE(at));
const SECTIONS: Readonly<Record<string, number>> = {
  header: 20,
  'root directory': wide(8) + 2,
  metadata: wide(24) + 70_000,
  'leaf directories': wide(40) + 3,
  'tile data': wide(56) + 100_000,
};

async function overwrite(path: string, position: number, bytes: Uint8Array): Promise<void> {
  await using file = await open(path, 'r+');
  await file.write(bytes, 0, bytes.length, position);
}

const isDamage = (error: unknown): boolean => isRonError(error, 'not_ready') && error.message.includes('damaged');

/** Reads every tile and the whole file. Returns how many reads were refused; each other one must be right. */
async function readEverything(pack: OpenPack, signal: AbortSignal): Promise<number> {
  let refused = 0;
  const attempt = async (read: () => Promise<void> | void): Promise<void> => {
    try {
      await read();
    } catch (error) {
      if (!isDamage(error)) throw error;
      refused += 1;
    }
  };
  for (const { z, x, y } of TILES) {
    const content = EXPECTED.get(tileId(z, x, y))!;
    await attempt(() => {
      const now = pack.tileNow!(z, x, y);
      assert.ok(now === undefined || content.equals(now.bytes));
    });
    await attempt(async () => assert.ok(content.equals((await pack.tile(z, x, y, signal))!.bytes)));
  }
  await attempt(async () => {
    let at = 0;
    for await (const batch of pack.read!(0, FILE.length, signal)) {
      for (const piece of batch) {
        assert.ok(FILE.subarray(at, at + piece.length).equals(piece));
        at += piece.length;
      }
    }
    assert.equal(at, FILE.length);
  });
  return refused;
}

/** After the first mismatch every read is refused, and it was reported once. */
async function assertFinal(packs: TestPacks, pack: OpenPack): Promise<void> {
  assert.ok(pack.problem !== undefined);
  assert.equal(packs.damages.length, 1);
  assert.throws(() => pack.tileNow!(0, 0, 0), isDamage);
  await assert.rejects(pack.tile(3, 7, 7, packs.signal), isDamage);
}

for (const [name, position] of Object.entries(SECTIONS)) {
  for (const isWarm of [true, false]) {
    test(`a byte flipped in the ${name} is not served (${isWarm ? 'read before' : 'not read before'})`, async (t) => {
      const packs = testPacks(t);
      const pack = await packs.open('flip', FILE);
      if (isWarm) assert.equal(await readEverything(pack, packs.signal), 0);
      await overwrite(pack.path, position, Uint8Array.of(FILE[position]! ^ 1));
      assert.ok((await readEverything(pack, packs.signal)) > 0);
      await assertFinal(packs, pack);
    });
  }
}

const DAMAGES: Readonly<Record<string, (path: string) => Promise<void>>> = {
  'cut to half': (path) => truncate(path, FILE.length / 2),
  emptied: (path) => truncate(path, 0),
  'overwritten by another pack': (path) => overwrite(path, 0, makePmtiles({ tiles: someTiles(3, 9000, 99) })),
};

for (const [name, damage] of Object.entries(DAMAGES)) {
  test(`a pack that is ${name} while it is read gives no wrong byte`, async (t) => {
    const packs = testPacks(t);
    const pack = await packs.open('damaged', FILE);
    let isDone = false;
    let rounds = 0;
    const readers = Array.from({ length: 4 }, async () => {
      while (!isDone) {
        if ((await readEverything(pack, packs.signal)) > 0) isDone = true;
        rounds += 1;
        await setImmediate();
      }
    });
    await eventually('the readers run', () => rounds > 0);
    await damage(pack.path);
    await Promise.all(readers);
    await assertFinal(packs, pack);
  });
}
