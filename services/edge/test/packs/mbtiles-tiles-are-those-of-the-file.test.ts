/** Tiles of MBTiles packs, compared with an independent reader: SQLite in this thread, with the formula of the specification. */
import assert from 'node:assert/strict';
import { copyFile, access, rm } from 'node:fs/promises';
import { DatabaseSync } from 'node:sqlite';
import { test } from 'node:test';
import { gzipSync } from 'node:zlib';
import { NEVER } from '@ron/kernel';
import type { OpenPack } from '../../src/packs/pack.ts';
import { makeMbtiles, pngTile, pngTiles } from './make-mbtiles.ts';
import { openTestPacks } from './mbtiles-support.ts';

const PLAIN = new URL('../../../../../shared/fixtures/mb-plain.mbtiles', import.meta.url);

/** Every row of the file, under its XYZ place. */
function readAll(path: string): Map<string, Uint8Array> {
  const db = new DatabaseSync(path, { readOnly: true });
  const rows = db.prepare('SELECT * FROM tiles').all() as Record<string, unknown>[];
  db.close();
  return new Map(
    rows.map((row) => {
      const z = Number(row['zoom_level']);
      const y = (1 << z) - 1 - Number(row['tile_row']);
      return [`${z}/${String(row['tile_column'])}/${y}`, row['tile_data'] as Uint8Array];
    }),
  );
}

/** Compares every place of every zoom level, present or not. */
async function compare(pack: OpenPack, wanted: Map<string, Uint8Array>): Promise<void> {
  const [min, max] = pack.info.zooms;
  let found = 0;
  for (let z = min; z <= max; z += 1) {
    for (let x = 0; x < 2 ** z; x += 1) {
      for (let y = 0; y < 2 ** z; y += 1) {
        const tile = await pack.tile(z, x, y, NEVER);
        assert.deepEqual(tile?.bytes, wanted.get(`${z}/${x}/${y}`), `${z}/${x}/${y}`);
        found += tile === undefined ? 0 : 1;
      }
    }
  }
  assert.equal(found, wanted.size);
  assert.equal(pack.info.tiles, wanted.size);
}

test('the tiles of a real pack, whose metadata lacks format and zooms', async (t) => {
  if (
    await access(PLAIN).then(
      () => false,
      () => true,
    )
  )
    return t.skip('../shared/fixtures is not there');
  await using packs = await openTestPacks();
  await copyFile(PLAIN, packs.path('plain.mbtiles'));
  await using pack = await packs.open('plain.mbtiles');
  const { format, tile_type, zooms, bounds, metadata } = pack.info;
  assert.deepEqual([format, tile_type, zooms], ['mbtiles', 'png', [0, 4]]);
  assert.deepEqual(bounds.map(Math.round), [-180, -70, 180, 85]);
  assert.deepEqual(metadata, { name: 'plain_1', description: 'demo description', version: '1.0.3' });
  await compare(pack, readAll(packs.path('plain.mbtiles')));
});

for (const schema of ['flat', 'view', 'compact'] as const) {
  test(`the tiles of a pack with the schema ${schema}`, async () => {
    await using packs = await openTestPacks();
    makeMbtiles({ path: packs.path('a.mbtiles'), schema, tiles: pngTiles(3) });
    await using pack = await packs.open('a.mbtiles');
    await compare(pack, readAll(packs.path('a.mbtiles')));
  });
}

test('format, zooms and bounds come from the metadata, and from the tiles if it lacks them', async () => {
  await using packs = await openTestPacks();
  const data = gzipSync('layers');
  const tiles = [{ z: 2, x: 1, y: 1, data }];
  makeMbtiles({ path: packs.path('derived.mbtiles'), tiles, metadata: { bounds: '1,2,3', minzoom: '-1' } });
  await using derived = await packs.open('derived.mbtiles');
  assert.deepEqual([derived.info.tile_type, derived.info.zooms], ['mvt', [2, 2]]);
  assert.deepEqual(
    derived.info.bounds.map((side) => Math.round(side * 100) / 100),
    [-90, 0, 0, 66.51],
  );
  const json = JSON.stringify({ vector_layers: [{ id: 'water' }] });
  const metadata = { format: 'pbf', minzoom: '1', maxzoom: '5', bounds: '-10,-20,30,40', center: '1,2,3', json };
  makeMbtiles({ path: packs.path('stated.mbtiles'), tiles, metadata });
  await using stated = await packs.open('stated.mbtiles');
  const { info } = stated;
  assert.deepEqual(
    [info.tile_type, info.zooms, info.bounds, info.center],
    ['mvt', [1, 5], [-10, -20, 30, 40], [1, 2, 3]],
  );
  assert.deepEqual(info.metadata, { vector_layers: [{ id: 'water', fields: {} }] });
});

test('a format with the name of a member of all objects is ignored', async () => {
  await using packs = await openTestPacks();
  for (const format of ['__proto__', 'constructor', 'toString']) {
    makeMbtiles({ path: packs.path(`${format}.mbtiles`), tiles: pngTiles(0), metadata: { format } });
    await using pack = await packs.open(`${format}.mbtiles`);
    assert.equal(pack.info.tile_type, 'png', format);
  }
});

test('vector_layers are reduced to the members of TileJSON, and others are left out', async () => {
  await using packs = await openTestPacks();
  const deep = '['.repeat(8000) + ']'.repeat(8000);
  const layersOf = async (layers: string): Promise<unknown> => {
    const path = packs.path('a.mbtiles');
    await rm(path, { force: true });
    makeMbtiles({ path, tiles: pngTiles(0), metadata: { json: `{"vector_layers":${layers}}` } });
    await using pack = await packs.open('a.mbtiles');
    return pack.info.metadata['vector_layers'];
  };
  assert.equal(await layersOf(deep), undefined);
  assert.equal(await layersOf(`[{"id":${deep}}]`), undefined);
  assert.deepEqual(
    await layersOf(`[{"id":"water","minzoom":1,"other":${deep},"fields":{"name":"String","deep":${deep}}}]`),
    [{ id: 'water', minzoom: 1, fields: { name: 'String' } }],
  );
});

test('gzip is detected, plain bytes, text and empty values are served as they are', async () => {
  await using packs = await openTestPacks();
  const compressed = gzipSync('layers');
  const tiles = [
    { z: 1, x: 0, y: 0, data: compressed },
    { z: 1, x: 1, y: 0, data: pngTile(1, 1, 0) },
    { z: 1, x: 0, y: 1, data: 'text' },
    { z: 1, x: 1, y: 1, data: null },
  ];
  makeMbtiles({ path: packs.path('a.mbtiles'), tiles });
  await using pack = await packs.open('a.mbtiles');
  const read = (x: number, y: number) => pack.tile(1, x, y, NEVER);
  assert.deepEqual(await read(0, 0), { bytes: new Uint8Array(compressed), encoding: 'gzip' });
  assert.deepEqual(await read(1, 0), { bytes: new Uint8Array(pngTile(1, 1, 0)), encoding: undefined });
  assert.deepEqual((await read(0, 1))?.bytes, new Uint8Array(Buffer.from('text')));
  assert.equal(await read(1, 1), undefined);
});

test('places outside of the grid or the zooms are not inside', async () => {
  await using packs = await openTestPacks();
  makeMbtiles({ path: packs.path('a.mbtiles'), tiles: pngTiles(2) });
  await using pack = await packs.open('a.mbtiles');
  assert.ok(pack.isInside(2, 3, 3));
  for (const [z, x, y] of [
    [2, 4, 0],
    [2, 0, 4],
    [3, 0, 0],
    [-1, 0, 0],
    [2, -1, 0],
    [2, 0.5, 0],
  ] as const) {
    assert.ok(!pack.isInside(z, x, y), `${z}/${x}/${y}`);
    assert.equal(await pack.tile(z, x, y, NEVER), undefined);
  }
});
