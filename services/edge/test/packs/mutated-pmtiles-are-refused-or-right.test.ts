import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import fc from 'fast-check';
import { isRonError } from '@ron/kernel';
import { MIB } from '@ron/testkit';
import type { OpenPack } from '../../src/packs/pack.ts';
import { places, tileId } from './hilbert.ts';
import { watchLoopTurns } from './loop-turns.ts';
import { compress, makePmtiles, varint } from './make-pmtiles.ts';
import { someTiles, testPacks } from './pack-fixtures.ts';
import { readTile } from './read-pmtiles.ts';

const RUNS = Number(process.env['RON_FUZZ_RUNS'] ?? 250);
const LOOP_TURN_MS_MAX = 50;
const SEEDS = [
  makePmtiles({ tiles: someTiles(2, 40), leaf_entries: 4 }),
  makePmtiles({ tiles: someTiles(2, 40), leaf_entries: 3, levels: 2, clustered: false }),
  makePmtiles({ tiles: someTiles(2, 40), leaf_entries: 4, directory_codec: 'gzip' }),
  makePmtiles({ tiles: someTiles(2, 40), directory_codec: 'zstd', tile_codec: 'br' }),
];

interface Mutation {
  readonly seed: number;
  /** Bytes that are replaced, mostly in the header and the directories. */
  readonly bytes: readonly { readonly at: number; readonly value: number }[];
  /** A number of the header that is replaced. */
  readonly number: { readonly field: number; readonly value: bigint } | undefined;
  readonly cut: number | undefined;
}

const mutation: fc.Arbitrary<Mutation> = fc.record({
  seed: fc.nat(SEEDS.length - 1),
  bytes: fc.array(fc.record({ at: fc.oneof(fc.nat(126), fc.nat(400), fc.nat(4000)), value: fc.nat(255) }), {
    maxLength: 3,
  }),
  number: fc.option(
    fc.record({ field: fc.nat(10), value: fc.oneof(fc.bigInt(0n, 5000n), fc.bigInt(0n, 2n ** 64n - 1n)) }),
    { nil: undefined },
  ),
  cut: fc.option(fc.nat(4000), { nil: undefined, freq: 5 }),
});

function mutate({ seed, bytes, number, cut }: Mutation): Buffer {
  const file = Buffer.from(SEEDS[seed]!);
  for (const { at, value } of bytes) if (at < file.length) file[at] = value;
  if (number !== undefined) file.writeBigUInt64LE(number.value, 8 + number.field * 8);
  return cut === undefined ? file : file.subarray(0, cut);
}

/** Every tile of an opened pack equals that of the independent reader. */
async function assertRight(pack: OpenPack, file: Buffer, signal: AbortSignal): Promise<void> {
  for (const [z, x, y] of places(0, 2)) {
    if (!pack.isInside(z, x, y)) continue;
    const tile = await pack.tile(z, x, y, signal);
    const expected = readTile(file, tileId(z, x, y));
    assert.equal(tile === undefined, expected === undefined);
    if (tile !== undefined) assert.ok(expected!.equals(tile.bytes));
  }
}

test('a mutated pack is refused, or every tile of it is right', async (t) => {
  const packs = testPacks(t);
  const path = join(packs.dir, 'fuzz.pmtiles');
  using turns = watchLoopTurns();
  let opened = 0;
  const before_bytes = process.memoryUsage().rss;
  await fc.assert(
    fc.asyncProperty(mutation, async (chosen) => {
      const file = mutate(chosen);
      await writeFile(path, file);
      const init = { path, sidecar: undefined, expect: undefined, onDamage: assert.fail, signal: packs.signal };
      const pack = await packs.opener.open(init).catch((error: unknown) => {
        assert.ok(isRonError(error, 'validation'), String(error));
      });
      if (pack === undefined) return;
      await using _ = pack;
      opened += 1;
      await assertRight(pack, file, packs.signal);
    }),
    { numRuns: RUNS },
  );
  assert.ok(opened > RUNS / 50, `${opened} mutated packs were opened`);
  const longest_ms = await turns.longest_ms();
  assert.ok(longest_ms < LOOP_TURN_MS_MAX, `a turn of the event loop took ${longest_ms} ms`);
  const grown_bytes = process.memoryUsage().rss - before_bytes;
  assert.ok(grown_bytes < 128 * MIB, `memory grew by ${grown_bytes} bytes`);
});

// [edge I-7]
test('the largest directory is decoded without holding the event loop', async (t) => {
  const packs = testPacks(t);
  // One byte for each number: ids 0, 1, 2, ..., runs of 1, lengths of 1, and the same content for all.
  const count = 2_600_000;
  const ids = Buffer.alloc(count, 1);
  ids[0] = 0;
  const root = compress(Buffer.concat([Uint8Array.from(varint(count)), ids, Buffer.alloc(3 * count, 1)]), 'gzip');
  const counts = { addressed: count, entries: count, contents: 1 };
  const file = makePmtiles({
    tiles: someTiles(0, 10),
    zooms: [0, 11],
    directory_codec: 'gzip',
    directories: { root },
    header: counts,
  });
  const pack = await packs.open('large', file);
  assert.equal(pack.info.tiles, count);
  using turns = watchLoopTurns();
  const tiles = await Promise.all([0, 1, 2, 3].map((x) => pack.tile(9, x, 500, packs.signal)));
  for (const tile of tiles) assert.equal(tile?.bytes.length, 1);
  const longest_ms = await turns.longest_ms();
  assert.ok(longest_ms < LOOP_TURN_MS_MAX, `a turn of the event loop took ${longest_ms} ms`);
});
