/** MBTiles files that a stranger made: each is refused with its reason, in a thread, while the event loop goes on. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { access, copyFile, readFile, stat, symlink, writeFile } from 'node:fs/promises';
import { DatabaseSync } from 'node:sqlite';
import { test } from 'node:test';
import { monitorEventLoopDelay } from 'node:perf_hooks';
import { isRonError, NEVER } from '@ron/kernel';
import { openDatabase } from '../../src/packs/mbtiles/thread/open-database.ts';
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

/** Each step refers to the one before twice, so that SQLite would expand the last one to 2^9 copies of the first. */
const DOUBLED = Array.from({ length: 9 }, (_, at) => at + 1);
const doubledQuery = (prefix: string, at: number): string =>
  `SELECT a.* FROM ${prefix}${at - 1} AS a JOIN ${prefix}${at - 1} AS b ON a.tile_row = b.tile_row`;

/** Schemas instead of the table `tiles`, and why they are refused. */
const SCHEMAS: readonly (readonly [name: string, sql: string, reason: RegExp])[] = [
  [
    'a view with recursion',
    `CREATE VIEW tiles AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n)
     SELECT x AS zoom_level, x AS tile_column, x AS tile_row, x AS tile_data FROM n`,
    /not a plain query of tables/,
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
  [
    'a view with a text above the limit',
    `CREATE VIEW other AS SELECT 1 IN (${'1,'.repeat(8192)}1) AS a; CREATE VIEW tiles AS SELECT * FROM t`,
    /schema is above 16 KiB/,
  ],
  [
    'many short tables',
    `${DOUBLED.map((at) => `CREATE TABLE many${at} (${'a'.repeat(2000)})`).join(';')}; CREATE VIEW tiles AS SELECT * FROM t`,
    /schema is above 16 KiB/,
  ],
  [
    'views of views',
    `CREATE VIEW v0 AS SELECT * FROM t; ${DOUBLED.map((at) => `CREATE VIEW v${at} AS ${doubledQuery('v', at)};`).join('')}
     CREATE VIEW tiles AS SELECT * FROM "V9"`,
    /not a plain query of tables/,
  ],
  [
    'a view whose name is not a word',
    `CREATE VIEW "a b" AS SELECT * FROM t; CREATE VIEW tiles AS SELECT * FROM "a b"`,
    /not a plain query of tables/,
  ],
  [
    'common table expressions',
    `CREATE VIEW tiles AS WITH v0 AS (SELECT * FROM t), ${DOUBLED.map((at) => `v${at} AS (${doubledQuery('v', at)})`).join()}
     SELECT * FROM v9`,
    /not a plain query of tables/,
  ],
  [
    'nested queries',
    `CREATE VIEW tiles AS ${DOUBLED.reduce(
      (query) => `SELECT zoom_level + zoom_level AS zoom_level, tile_column, tile_row, tile_data FROM (${query})`,
      'SELECT * FROM t',
    )}`,
    /not a plain query of tables/,
  ],
  [
    'metadata by a view of a view',
    `DROP TABLE metadata; CREATE VIEW m AS SELECT 'name' AS name, tile_row AS value FROM t;
     CREATE VIEW metadata AS SELECT * FROM m; CREATE VIEW tiles AS SELECT * FROM t`,
    /not a plain query of tables/,
  ],
  [
    'generated columns',
    `CREATE TABLE tiles (zoom_level, tile_column, tile_row, g0, ${Array.from(
      { length: 16 },
      (_, at) => `g${at + 1} AS (g${at} + g${at})`,
    ).join()}, tile_data AS (g16), UNIQUE (zoom_level, tile_column, tile_row))`,
    /too much memory/,
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

test('a file that is not a regular one is refused at once', async () => {
  await using packs = await openTestPacks();
  execFileSync('mkfifo', [packs.path('pipe.mbtiles')]);
  await refuses(packs, 'pipe.mbtiles', /not a regular file/);
  const { ino, dev, size, mtimeNs } = await stat(packs.path('pipe.mbtiles'), { bigint: true });
  const identity = { device: dev, inode: ino, size, mtime_ns: mtimeNs };
  // As if the pipe came after the first look at the file.
  assert.throws(() => openDatabase({ path: packs.path('pipe.mbtiles'), identity }), /not a regular file/);
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

test('a schema in many pages is measured, and one that refers to itself is refused', async () => {
  await using packs = await openTestPacks();
  const columns = Array.from({ length: 20 }, (_, at) => `column_${at}`).join();
  const make = (file: string, count: number): void => {
    const tables = Array.from({ length: count }, (_, at) => `CREATE TABLE other_${at} (${columns});`);
    makeMbtiles({ path: packs.path(file), page_bytes: 512, tiles: pngTiles(1), sql: tables.join('') });
  };
  make('small.mbtiles', 20);
  const bytes = await readFile(packs.path('small.mbtiles'));
  assert.equal(bytes[100], 5, 'the first page is an inner one');
  await using pack = await packs.open('small.mbtiles');
  assert.equal(pack.info.tiles, 5);
  make('large.mbtiles', 80);
  await refuses(packs, 'large.mbtiles', /schema is above 16 KiB/);
  // The rightmost child of the first page becomes the first page.
  bytes.writeUInt32BE(1, 108);
  await writeFile(packs.path('loop.mbtiles'), bytes);
  await refuses(packs, 'loop.mbtiles', /more than 256 pages/);
  // Its rows begin at the last byte of the page.
  bytes.fill(0xff, 112, 112 + 2 * bytes.readUInt16BE(103));
  await writeFile(packs.path('end.mbtiles'), bytes);
  await refuses(packs, 'end.mbtiles', /damaged/);
});

test('a file whose changes are in a WAL is refused', async () => {
  await using packs = await openTestPacks();
  const path = packs.path('a.mbtiles');
  makeMbtiles({ path, tiles: pngTiles(1) });
  const writer = new DatabaseSync(path);
  writer.exec(`PRAGMA journal_mode = WAL; UPDATE tiles SET tile_data = x'00'`);
  await refuses(packs, 'a.mbtiles', /-wal has changes/);
  await symlink(path, packs.path('link.mbtiles'));
  await refuses(packs, 'link.mbtiles', /-wal has changes/);
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
