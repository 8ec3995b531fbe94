/** Makes MBTiles files for tests. */
import { DatabaseSync } from 'node:sqlite';

/** A tile by XYZ: `y` counts from the north. */
export interface MadeTile {
  readonly z: number;
  readonly x: number;
  readonly y: number;
  readonly data: Uint8Array | string | null;
}

export interface MakeMbtilesInit {
  readonly path: string;
  readonly tiles?: readonly MadeTile[];
  /** Default: format and zooms of `tiles`. */
  readonly metadata?: Readonly<Record<string, string>>;
  /** `flat`: a table `tiles`. `view`: tables `map` and `images`. `compact`: WITHOUT ROWID and integer keys. Default `flat`. */
  readonly schema?: 'flat' | 'view' | 'compact';
  /** The size of a page; that of SQLite if it is missing. */
  readonly page_bytes?: number;
  /** SQL that runs at the end. */
  readonly sql?: string;
}

const SCHEMAS = {
  flat: `CREATE TABLE tiles (zoom_level integer, tile_column integer, tile_row integer, tile_data blob);
    CREATE UNIQUE INDEX tile_index ON tiles (zoom_level, tile_column, tile_row);`,
  view: `CREATE TABLE map (zoom_level INTEGER, tile_column INTEGER, tile_row INTEGER, tile_id TEXT);
    CREATE UNIQUE INDEX map_index ON map (zoom_level, tile_column, tile_row);
    CREATE TABLE images (tile_data blob, tile_id text);
    CREATE UNIQUE INDEX images_id ON images (tile_id);
    CREATE VIEW tiles AS SELECT map.zoom_level AS zoom_level, map.tile_column AS tile_column, map.tile_row AS tile_row,
      images.tile_data AS tile_data FROM map JOIN images ON images.tile_id = map.tile_id;`,
  compact: `CREATE TABLE shallow (zoom_level INTEGER, tile_column INTEGER, tile_row INTEGER, data_id INTEGER,
      PRIMARY KEY (zoom_level, tile_column, tile_row)) WITHOUT ROWID;
    CREATE TABLE data (id INTEGER PRIMARY KEY, tile_data BLOB);
    CREATE VIEW tiles AS SELECT s.zoom_level, s.tile_column, s.tile_row, d.tile_data
      FROM shallow AS s LEFT JOIN data AS d ON s.data_id = d.id;`,
};

export function makeMbtiles(init: MakeMbtilesInit): void {
  const { path, tiles = [], metadata = { format: 'png' }, schema = 'flat', page_bytes, sql } = init;
  const db = new DatabaseSync(path);
  try {
    if (page_bytes !== undefined) db.exec(`PRAGMA page_size = ${page_bytes}`);
    db.exec(`PRAGMA journal_mode = OFF; BEGIN; CREATE TABLE metadata (name text, value text); ${SCHEMAS[schema]}`);
    const describe = db.prepare('INSERT INTO metadata VALUES (?, ?)');
    for (const [name, value] of Object.entries(metadata)) describe.run(name, value);
    const insert = inserter(db, schema);
    for (const tile of tiles) insert(tile);
    db.exec('COMMIT');
    if (sql !== undefined) db.exec(sql);
  } finally {
    db.close();
  }
}

function inserter(db: DatabaseSync, schema: keyof typeof SCHEMAS): (tile: MadeTile) => void {
  const row = ({ z, y }: MadeTile): number => 2 ** z - 1 - y;
  if (schema === 'flat') {
    const insert = db.prepare('INSERT INTO tiles VALUES (?, ?, ?, ?)');
    return (tile) => void insert.run(tile.z, tile.x, row(tile), tile.data);
  }
  const isView = schema === 'view';
  const place = db.prepare(`INSERT INTO ${isView ? 'map' : 'shallow'} VALUES (?, ?, ?, ?)`);
  const data = db.prepare(isView ? 'INSERT INTO images VALUES (?2, ?1)' : 'INSERT INTO data VALUES (?1, ?2)');
  let ids = 0;
  return (tile) => {
    ids += 1;
    const id = isView ? `t${ids}` : ids;
    place.run(tile.z, tile.x, row(tile), id);
    data.run(id, tile.data);
  };
}

/** The first bytes of a PNG, then bytes that tell the tile. */
export function pngTile(z: number, x: number, y: number): Uint8Array {
  return Buffer.concat([Buffer.from('\x89PNG\r\n\x1a\n', 'latin1'), Buffer.from(`tile ${z}/${x}/${y}`)]);
}

/** All tiles from zoom level 0 to `zoom_max`. */
export function pngTiles(zoom_max: number): MadeTile[] {
  const tiles: MadeTile[] = [];
  for (let z = 0; z <= zoom_max; z += 1) {
    for (let x = 0; x < 2 ** z; x += 1) {
      for (let y = 0; y < 2 ** z; y += 1) tiles.push({ z, x, y, data: pngTile(z, x, y) });
    }
  }
  return tiles;
}
