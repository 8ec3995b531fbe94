/** MBTiles files that a stranger made: each is refused with its reason, in a thread, while the event loop goes on. */
import assert from 'node:assert/strict';
import { access, copyFile, writeFile } from 'node:fs/promises';
import { DatabaseSync } from 'node:sqlite';
import { test } from 'node:test';
import { monitorEventLoopDelay } from 'node:perf_hooks';
import { isRonError, NEVER } from '@ron/kernel';
import { makeMbtiles, pngTile, pngTiles } from './make-mbtiles.ts';
import { openTestPacks, type TestPacks } from './mbtiles-support.ts';

const CORRUPT = new URL('../../../../../shared/fixtures/mb-corrupt.mbtiles', import.meta.url);
const ROWS = `WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 3000) SELECT`;

async function refuses(packs: TestPacks, file: string, reason: RegExp): Promise<void> {
  await assert.rejects(packs.open(file), (error) => {
    assert.ok(isRonError(error, 'validation'), String(error));
    assert.match(error.message, reason);
    return true;
  });
}

/** Schemas instead of the table `tiles`, and why they are refused. */
const SCHEMAS: readonly (readonly [name: string, sql: string, reason: RegExp])[] = [
  [
    'a view with recursion',
    `CREATE VIEW tiles AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n)
     SELECT x AS zoom_level, x AS tile_column, x AS tile_row, x AS tile_data FROM n`,
    /recursion/,
  ],
  [
    'a view that calls a function',
    `CREATE VIEW tiles AS SELECT zoom_level, tile_column, tile_row, zeroblob(1000000000) AS tile_data FROM t`,
    /a function .*zeroblob/,
  ],
  [
    'a view that calls an aggregate of ours',
    `CREATE VIEW tiles AS SELECT zoom_level, tile_column, tile_row, max(tile_data) AS tile_data FROM t`,
    /a function .*max/,
  ],
  [
    'a view over a join of tables without unique keys',
    `CREATE TABLE many (k, v); CREATE INDEX many_k ON many (k); INSERT INTO many ${ROWS} 1, i FROM n;
     CREATE VIEW tiles AS SELECT t.zoom_level, t.tile_column, t.tile_row, t.tile_data FROM t
     JOIN many AS a ON a.k = t.zoom_level + 1 JOIN many AS b ON b.k = a.k JOIN many AS c ON c.k = b.k AND c.v < 0`,
    /unique/,
  ],
  [
    'a view over a cross join',
    `CREATE VIEW tiles AS SELECT a.zoom_level, a.tile_column, a.tile_row, b.tile_data FROM t AS a, t AS b, t AS c`,
    /unique|steps/,
  ],
  [
    'a view over more tables than the limit',
    `CREATE TABLE k (id INTEGER PRIMARY KEY); CREATE VIEW tiles AS SELECT t.* FROM t
     JOIN k AS a ON a.id = 1 JOIN k AS b ON b.id = 2 JOIN k AS c ON c.id = 3 JOIN k AS d ON d.id = 4`,
    /5 steps/,
  ],
  [
    'a view over a part of a primary key',
    `CREATE TABLE p (a, b, v, PRIMARY KEY (a, b)) WITHOUT ROWID; INSERT INTO p ${ROWS} 0, i, i FROM n;
     CREATE VIEW tiles AS SELECT zoom_level, tile_column, tile_row, tile_data FROM t JOIN p ON p.a = t.zoom_level AND p.v < 0`,
    /unique/,
  ],
  ['a table without an index', `CREATE TABLE tiles AS SELECT * FROM t`, /needs an index .*SCAN tiles/],
  [
    'an index of the zoom level alone',
    `CREATE TABLE tiles AS SELECT * FROM t; CREATE INDEX z ON tiles (zoom_level)`,
    /needs an index/,
  ],
  [
    'a virtual table',
    `CREATE VIRTUAL TABLE tiles USING fts5 (zoom_level, tile_column, tile_row, tile_data)`,
    /needs an index|not allowed/,
  ],
  ['no tiles at all', ``, /no such table: tiles/],
  [
    'a missing column',
    `CREATE VIEW tiles AS SELECT zoom_level, tile_column, tile_data FROM t`,
    /no such column: tile_row/,
  ],
  [
    'an empty table',
    `CREATE TABLE tiles (zoom_level, tile_column, tile_row, tile_data, UNIQUE (zoom_level, tile_column, tile_row))`,
    /no tiles/,
  ],
  [
    'a tile outside of the grid',
    `UPDATE t SET tile_row = 2 WHERE zoom_level = 1; CREATE VIEW tiles AS SELECT * FROM t`,
    /outside of the grid.* 1, 1, 2/,
  ],
  [
    'a zoom level that is text',
    `UPDATE t SET zoom_level = 'x' WHERE zoom_level = 1; CREATE VIEW tiles AS SELECT * FROM t`,
    /outside of the grid.* x, 1, 0/,
  ],
  [
    'metadata by a view with a join',
    `DROP TABLE metadata; CREATE VIEW metadata AS SELECT a.tile_row AS name, b.tile_row AS value FROM t AS a, t AS b, t AS c
     WHERE a.tile_row + b.tile_row + c.tile_row < 0; CREATE VIEW tiles AS SELECT * FROM t`,
    /metadata is not a plain table/,
  ],
  [
    'metadata above 10 MiB',
    `INSERT INTO metadata ${ROWS} i, printf('%.4000c', 'x') FROM n; CREATE VIEW tiles AS SELECT * FROM t`,
    /metadata is above 10 MiB/,
  ],
  [
    'one value of metadata above 10 MiB',
    `INSERT INTO metadata VALUES ('json', printf('%.20000000c', 'x')); CREATE VIEW tiles AS SELECT * FROM t`,
    /above 10 MiB/,
  ],
];

test('hostile schemas are refused, and the event loop goes on', async (t) => {
  await using packs = await openTestPacks();
  const table = `CREATE TABLE t (zoom_level, tile_column, tile_row, tile_data, UNIQUE (zoom_level, tile_column, tile_row));
    INSERT INTO t VALUES (0, 0, 0, x'00'), (1, 1, 0, x'01'); DROP TABLE tiles;`;
  for (const [at, [name, sql]] of SCHEMAS.entries()) {
    assert.doesNotThrow(() => makeMbtiles({ path: packs.path(`${at}.mbtiles`), sql: table + sql }), name);
  }
  const delay = monitorEventLoopDelay({ resolution: 5 });
  delay.enable();
  for (const [at, [name, , reason]] of SCHEMAS.entries()) {
    await t.test(name, () => refuses(packs, `${at}.mbtiles`, reason));
  }
  delay.disable();
  t.diagnostic(`longest delay of the event loop: ${(delay.max / 1e6).toFixed(1)} ms`);
});

test('files that are not a sound database are refused', async (t) => {
  await using packs = await openTestPacks();
  await writeFile(packs.path('text.mbtiles'), 'not a database'.repeat(1000));
  await refuses(packs, 'text.mbtiles', /not an SQLite database/);
  await writeFile(packs.path('empty.mbtiles'), '');
  await refuses(packs, 'empty.mbtiles', /no such table: tiles/);
  await t.test('the corrupt fixture', async (u) => {
    if (
      await access(CORRUPT).then(
        () => false,
        () => true,
      )
    )
      return u.skip('../shared/fixtures is not there');
    await copyFile(CORRUPT, packs.path('corrupt.mbtiles'));
    await refuses(packs, 'corrupt.mbtiles', /damaged/);
  });
});

test('a file whose changes are in a WAL is refused', async () => {
  await using packs = await openTestPacks();
  const path = packs.path('a.mbtiles');
  makeMbtiles({ path, tiles: pngTiles(1) });
  const writer = new DatabaseSync(path);
  writer.exec(`PRAGMA journal_mode = WAL; UPDATE tiles SET tile_data = x'00'`);
  await refuses(packs, 'a.mbtiles', /-wal has changes/);
  writer.close();
});

test('triggers of a pack never fire, and its other tables are not read', async () => {
  await using packs = await openTestPacks();
  const sql = `CREATE TABLE seen (x); CREATE TRIGGER t AFTER INSERT ON seen BEGIN DELETE FROM tiles; END;
    CREATE VIEW other AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x FROM n`;
  makeMbtiles({ path: packs.path('a.mbtiles'), tiles: pngTiles(1), sql });
  await using pack = await packs.open('a.mbtiles');
  assert.deepEqual((await pack.tile(1, 0, 1, NEVER))?.bytes, new Uint8Array(pngTile(1, 0, 1)));
});

test('a tile above 10 MiB is refused, one of 10 MiB is not, and memory stays flat', async () => {
  await using packs = await openTestPacks();
  const sql = `INSERT INTO tiles VALUES (0, 0, 0, zeroblob(10485760)), (1, 0, 0, zeroblob(10485761)), (1, 1, 0, zeroblob(60000000))`;
  makeMbtiles({ path: packs.path('a.mbtiles'), sql });
  await using pack = await packs.open('a.mbtiles');
  assert.equal((await pack.tile(0, 0, 0, NEVER))?.bytes.length, 10_485_760);
  const before = process.memoryUsage.rss();
  for (const x of [0, 1]) {
    await assert.rejects(pack.tile(1, x, 1, NEVER), (error) => isRonError(error, 'decompress_cap'));
  }
  assert.ok(process.memoryUsage.rss() - before < 200 * 1024 * 1024);
  assert.deepEqual(packs.damage, []);
});
