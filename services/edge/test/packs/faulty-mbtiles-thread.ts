/**
 * The threads of MBTiles, which hang or crash at tiles of zoom level 1: in column 0 they hang, in column 1 they crash once. Each
 * read appends the number of its thread to a file.
 */
import { appendFileSync, existsSync, writeFileSync } from 'node:fs';
import { threadId } from 'node:worker_threads';
import type { DatabaseFile, TileResult } from '../../src/packs/mbtiles/thread/calls.ts';
import { close, open, tile as realTile, verify } from '../../src/packs/mbtiles/thread/mbtiles-thread.ts';

export { close, open, verify };

export function tile(file: DatabaseFile, zoom: number, column: number, row: number): TileResult {
  appendFileSync(`${file.path}.threads`, `${threadId} `);
  if (zoom === 1 && column === 0) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);
  const crashed = `${file.path}.crashed`;
  if (zoom === 1 && column === 1 && !existsSync(crashed)) {
    writeFileSync(crashed, '');
    process.exit(7);
  }
  return realTile(file, zoom, column, row);
}
