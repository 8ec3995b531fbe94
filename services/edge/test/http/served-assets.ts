/** Shared by the tests of HTTP semantics: one asset of each kind, served with the fast path and without. */
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { eventually, tempDir } from '@ron/testkit';
import { addressOf } from '@ron/testkit/service';
import { answer, HOST, originOf, startFilling, type Filling } from '../fill/support.ts';
import { compress, makePmtiles } from '../packs/make-pmtiles.ts';
import type { Coded, Representation } from './rfc-model.ts';

export const RASTER_TILE = Buffer.from(Array.from({ length: 3000 }, (_, i) => (i * 7) % 251));
export const VECTOR_TILE = Buffer.from('a tile of lines and points. '.repeat(60));
export const LIVE_BODY = Array.from({ length: 1200 }, (_, i) => String.fromCharCode(33 + (i % 90))).join('');
export const MODIFIED_MS = Date.UTC(2025, 0, 15, 12, 30, 45);

export const coded = (bytes: Buffer): Coded => ({ bytes, etag: `"${addressOf(bytes)}"` });

export interface ServedAsset {
  readonly name: string;
  readonly path: string;
  readonly about: Representation;
  readonly media_type: string;
  readonly cache_control: string;
}

export interface ServedAssets extends AsyncDisposable {
  readonly fast: Filling;
  readonly routed: Filling;
  readonly assets: readonly ServedAsset[];
}

/** `flags`: for both services. */
export async function serveAssets(flags: readonly string[] = []): Promise<ServedAssets> {
  await using resources = new AsyncDisposableStack();
  const modified = new Date(MODIFIED_MS).toUTCString();
  const headers = ['cache-control: max-age=3600', `last-modified: ${modified}`];
  const origin = resources.use(await originOf((socket) => void socket.write(answer(LIVE_BODY, ...headers))));
  const raster = makePmtiles({ tiles: [{ z: 0, x: 0, y: 0, bytes: RASTER_TILE }], type: 'png', zooms: [0, 1] });
  const vector = makePmtiles({
    tiles: [{ z: 0, x: 0, y: 0, bytes: VECTOR_TILE }],
    type: 'mvt',
    tile_codec: 'gzip',
    zooms: [0, 1],
  });
  const start = async (more: readonly string[]): Promise<Filling> => {
    const { path: dir } = resources.use(await tempDir());
    await mkdir(join(dir, 'packs'), { recursive: true });
    await writeFile(join(dir, 'packs', 'raster.pmtiles'), raster);
    await writeFile(join(dir, 'packs', 'vector.pmtiles'), vector);
    const service = resources.use(await startFilling(origin, { dir, flags: [...flags, ...more] }));
    await eventually('the packs are mounted', () => service.edge.packs.list().length === 2);
    return service;
  };
  const fast = await start([]);
  const routed = await start(['--edge.fast_path=false']);
  const live: ServedAsset = {
    name: 'an asset of an origin',
    path: `live/${HOST}:${origin.port}/a.png`,
    about: { identity: coded(Buffer.from(LIVE_BODY)), modified_ms: MODIFIED_MS },
    media_type: 'image/png',
    cache_control: 'max-age=3600',
  };
  const assets = [...packAssets(raster), live];
  const kept = resources.move();
  return { fast, routed, assets, [Symbol.asyncDispose]: () => kept.disposeAsync() };
}

function packAssets(raster: Buffer): ServedAsset[] {
  const tiles = { cache_control: 'max-age=60' } as const;
  return [
    {
      ...tiles,
      name: 'a tile',
      path: 'pack/raster/0/0/0.png',
      about: { identity: coded(RASTER_TILE) },
      media_type: 'image/png',
    },
    {
      ...tiles,
      name: 'a compressed tile',
      path: 'pack/vector/0/0/0.mvt',
      about: {
        identity: coded(VECTOR_TILE),
        stored: { ...coded(Buffer.from(compress(VECTOR_TILE, 'gzip'))), coding: 'gzip' },
      },
      media_type: 'application/vnd.mapbox-vector-tile',
    },
    {
      ...tiles,
      name: 'the file of a pack',
      path: 'pack/raster.pmtiles',
      about: { identity: coded(raster) },
      media_type: 'application/vnd.pmtiles',
    },
  ];
}
