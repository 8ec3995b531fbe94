/** The one row of all assets: tiles and files of packs, assets of origins, objects of storage. */
import {
  bytes,
  empty,
  route,
  Type,
  type ByteSource,
  type Route,
  type RouteAnswer,
  type RouteContext,
} from '@ron/ingress';
import { blake3 } from '@napi-rs/blake-hash';
import { formatAddress } from '@ron/proto';
import { addressIn, parseAsset, type AssetTarget, type ProofRange, type Query } from '../assets/asset-target.ts';
import { hitStatus } from '../assets/cache-status.ts';
import type { DiskReads } from '../assets/disk-reads.ts';
import { ASSET_PATH } from '../assets/fast-assets.ts';
import type { FetchedAssets } from '../assets/fetched-assets.ts';
import type { HitTotals } from '../assets/hit-totals.ts';
import { notPmtiles, packFile } from '../assets/pack-file.ts';
import type { PackTiles, TileTarget } from '../assets/pack-tiles.ts';
import { decodedTile, TILE_HEADERS, type DecodeLimits } from '../assets/tile-answer.ts';
import { tileJson } from '../assets/tilejson.ts';
import { ramSource } from '../cache/asset-source.ts';
import type { EdgeConfig } from '../config.ts';
import type { Missing } from '../fill/fills.ts';
import { parseLive } from '../fill/live-path.ts';
import type { Mount, Packs } from '../packs/packs.ts';

type Request = Pick<RouteContext, 'headers' | 'host' | 'deadline' | 'ip' | 'park'>;

export interface AssetRouteInit {
  /** The configuration in force. */
  readonly current: { readonly value: EdgeConfig };
  readonly packs: Packs;
  readonly tiles: PackTiles;
  readonly fetched: FetchedAssets;
  readonly reads: DiskReads;
  readonly hits: HitTotals;
}

export function assetRoute(init: AssetRouteInit): Route {
  const { current } = init;
  return route({
    method: 'GET',
    path: ASSET_PATH,
    summary: 'Returns a tile or file of a pack, an asset of an origin, or an object of storage.',
    // [edge I-9] The capability is checked before a read or a fill begins.
    scope: current.value.auth.reads ? 'edge:get' : null,
    lane: 'inline',
    body: 'none',
    cors: true,
    statuses: [200, 204, 206, 304, 400, 403, 404, 412, 413, 416, 429, 502, 503, 504],
    schema: { params: Type.Object({ '*': Type.String() }) },
    facts: ({ params }) => factsOf(params['*']!),
    handler: (context) => {
      const live = (path: string, query: Query): Missing => parseLive(path, query, current.value.fill.query);
      const target = parseAsset(context.params['*'], context.query, live);
      return answerOf(init, target, context);
    },
  });
}

/** A capability may be limited to addresses. */
function factsOf(path: string): { readonly address?: string } {
  const address = addressIn(path);
  return address === undefined ? {} : { address };
}

async function answerOf(init: AssetRouteInit, target: AssetTarget, context: Request): Promise<RouteAnswer> {
  if (target.kind === 'tile') return await tileAnswer(init, target, context);
  if (target.kind === 'tilejson') return tileJsonAnswer(init, target.pack, context);
  if (target.kind === 'pack_file') return packFileAnswer(init, target.pack, target.proof);
  return bytes(await init.fetched.answer(target.missing, context));
}

function packFileAnswer(init: AssetRouteInit, name: string, proof: ProofRange | undefined): RouteAnswer {
  const mount = mountOf(init, name);
  if (mount.pack.read === undefined) throw notPmtiles();
  init.hits.count('pack');
  return bytes(packFile(mount, init.reads, proof));
}

async function tileAnswer(init: AssetRouteInit, target: TileTarget, context: Request): Promise<RouteAnswer> {
  const { tiles, hits, current } = init;
  const { headers, deadline } = context;
  const entry = await tiles.read(target, deadline.signal);
  hits.count(entry?.tier ?? 'pack');
  if (entry === undefined) return empty(204, { ...TILE_HEADERS, 'Cache-Status': hitStatus('pack').text });
  const decoded = await decodedTile(entry, headers['accept-encoding'], limitsOf(current.value), deadline.signal);
  return bytes(decoded ?? entry.source);
}

const limitsOf = ({ ingress }: EdgeConfig): DecodeLimits => ({
  ratio_max: ingress.decompress_max_ratio,
  bytes_max: ingress.decompress_abs_bytes,
});

function tileJsonAnswer(init: AssetRouteInit, name: string, context: Request): RouteAnswer {
  const { info } = mountOf(init, name).pack;
  const { edge, tls } = init.current.value;
  const scheme = tls.cert_file === undefined ? 'http' : 'https';
  const base = edge.public_url?.replace(/\/$/, '') ?? `${scheme}://${context.host ?? 'localhost'}`;
  return bytes(jsonSource(tileJson(name, info, base)));
}

function jsonSource(text: string): ByteSource {
  const body = Buffer.from(text);
  const about = { address: formatAddress(blake3(body)), size: body.length, media_type: 'application/json' };
  return { ...ramSource(about, body), headers: TILE_HEADERS, cache_status: hitStatus('pack') };
}

function mountOf({ packs }: AssetRouteInit, name: string): Mount {
  const mount = packs.get(name);
  if (mount === undefined) throw packs.absence(name);
  // Throws if the pack is damaged.
  mount.hold()[Symbol.dispose]();
  return mount;
}
