import assert from 'node:assert/strict';
import { copyFile, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { blake3 } from '@napi-rs/blake-hash';
import { assertSameBytes } from '@ron/testkit';
import type { OpenPack } from '../../src/packs/pack.ts';
import { places, tileId } from './hilbert.ts';
import { CODECS, makePmtiles, TYPES, type MakeInit } from './make-pmtiles.ts';
import { fixture, someTiles, testPacks } from './pack-fixtures.ts';
import { readAllTiles } from './read-pmtiles.ts';

/** Compares every place of the pack, with and without waiting, with the independent reader. */
async function compareAll(pack: OpenPack, file: Buffer, signal: AbortSignal): Promise<number> {
  const expected = readAllTiles(file);
  const [min, max] = pack.info.zooms;
  let found = 0;
  for (const [z, x, y] of places(min, max)) {
    assert.ok(pack.isInside(z, x, y));
    const content = expected.get(tileId(z, x, y));
    const tile = await pack.tile(z, x, y, signal);
    const name = `${z}/${x}/${y}`;
    assert.equal(tile === undefined, content === undefined, name);
    const now = pack.tileNow!(z, x, y);
    if (now !== undefined) assertSameBytes(now.bytes, content!, `${name} now`);
    if (tile === undefined) continue;
    assertSameBytes(tile.bytes, content!, name);
    found += 1;
  }
  assert.equal(found, expected.size, 'all tiles of the file are within its zooms');
  assert.equal(pack.info.tiles, expected.size);
  return found;
}

const LAYOUTS: Readonly<Record<string, Partial<MakeInit>>> = {
  'a root directory': {},
  'leaf directories': { leaf_entries: 7 },
  'three levels of leaves': { leaf_entries: 5, levels: 3 },
  'tile data in another order': { clustered: false, leaf_entries: 16 },
  'gaps between sections': { gap: 33, leaf_entries: 16 },
};

for (const [name, layout] of Object.entries(LAYOUTS)) {
  test(`every tile of a pack with ${name} is read`, async (t) => {
    const packs = testPacks(t);
    for (const directory_codec of CODECS) {
      const file = makePmtiles({ ...layout, directory_codec, tiles: someTiles(4, 700), zooms: [0, 5] });
      const pack = await packs.open(directory_codec, file);
      assert.equal(await compareAll(pack, file, packs.signal), 341);
      assert.equal(pack.info.address, `b3:${blake3(file).toString('hex')}`);
      assert.equal(pack.isInside(6, 0, 0), false);
      assert.equal(pack.isInside(2, 4, 0), false);
      assert.equal(await pack.tile(6, 0, 0, packs.signal), undefined);
    }
  });
}

test('every tile type and compression is reported as it is stored', async (t) => {
  const packs = testPacks(t);
  for (const type of TYPES) {
    for (const tile_codec of CODECS) {
      const file = makePmtiles({ tiles: someTiles(1, 300), type, tile_codec, directory_codec: 'gzip' });
      const pack = await packs.open(`${type}-${tile_codec}`, file);
      await compareAll(pack, file, packs.signal);
      assert.equal(pack.info.tile_type, type);
      const tile = await pack.tile(1, 0, 0, packs.signal);
      assert.equal(tile?.encoding, tile_codec === 'none' ? undefined : tile_codec);
    }
  }
});

test('tiles that span many groups, and ranges of the file, are read exactly', async (t) => {
  const packs = testPacks(t);
  const file = makePmtiles({ tiles: someTiles(2, 190_000), leaf_entries: 4 });
  const pack = await packs.open('large', file);
  await compareAll(pack, file, packs.signal);
  for (const [start, end] of [
    [0, file.length],
    [0, 1],
    [65_535, 65_537],
    [65_536, 131_072],
    [file.length - 1, file.length],
    [1_000_001, 2_500_000],
  ] as const) {
    const pieces: Buffer[] = [];
    for await (const batch of pack.read!(start, end, packs.signal)) {
      for (const piece of batch) pieces.push(Buffer.from(piece));
    }
    assertSameBytes(Buffer.concat(pieces), file.subarray(start, end), `${start} to ${end}`);
  }
});

test('a warm tile is read without waiting', async (t) => {
  const packs = testPacks(t);
  const pack = await packs.open('warm', makePmtiles({ tiles: someTiles(3, 500), leaf_entries: 8 }));
  assert.equal(pack.tileNow!(3, 1, 1), undefined, 'its directories are not decoded yet');
  const tile = await pack.tile(3, 1, 1, packs.signal);
  assertSameBytes(pack.tileNow!(3, 1, 1)!.bytes, tile!.bytes);
});

test('metadata of TileJSON is kept, and members of other types are left out', async (t) => {
  const packs = testPacks(t);
  const layer = { id: 'roads', description: 'lines', minzoom: 0, maxzoom: 3, fields: { kind: 'String', bad: 7 } };
  const metadata = { name: 'n', attribution: 5, version: '2', secret: 'x', vector_layers: [layer] };
  const pack = await packs.open('meta', makePmtiles({ tiles: someTiles(1, 10), metadata, directory_codec: 'br' }));
  assert.deepEqual(pack.info.metadata, {
    name: 'n',
    version: '2',
    vector_layers: [{ ...layer, fields: { kind: 'String' } }],
  });
  assert.deepEqual(pack.info.center, [10, 50, 0]);
  assert.deepEqual(pack.info.bounds, [-180, -85, 180, 85]);
});

for (const name of ['pm-tiny.pmtiles', 'pm-raster-z3.pmtiles']) {
  const path = fixture(name);
  const skip = path === undefined ? 'the fixtures are not beside the project' : false;
  test(`every tile of ${name} is read`, { skip }, async (t) => {
    const packs = testPacks(t);
    const copy = join(packs.dir, name);
    await copyFile(path!, copy);
    const pack = await packs.openFile(copy);
    assert.ok((await compareAll(pack, await readFile(copy), packs.signal)) > 0);
  });
}
