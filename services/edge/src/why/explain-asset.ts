/**
 * Explains an asset: where it is, why it is fresh or stale, and where its bytes come from.
 *
 * Contract: fetches nothing, changes no entry, puts nothing into memory and marks nothing as used. The proof is that of the entry
 * with exactly the provenance of the asset; an entry of another log, a pruned one or a damaged log gives `proof_problem` instead.
 * Bound: reads from disk are within `edge.reads_max`. Overflow: `busy`.
 */
import { isRonError, RonError, sched } from '@ron/kernel';
import type { AuditProof, EdgeFillable, EdgeFreshnessDto, EdgeProvenanceDto, EdgeWhyDto, Address } from '@ron/proto';
import { tileKey, type AssetTarget } from '../assets/asset-target.ts';
import type { DiskReads } from '../assets/disk-reads.ts';
import type { PackTiles, TileTarget } from '../assets/pack-tiles.ts';
import { canonicalExt } from '../assets/tile-answer.ts';
import type { AssetCache } from '../cache/asset-cache.ts';
import type { AssetMeta } from '../cache/cached-asset.ts';
import type { EdgeConfig } from '../config.ts';
import { requireFillable } from '../fill/allow-list.ts';
import type { Missing } from '../fill/fills.ts';
import { freshnessOf } from '../fill/freshness/freshness.ts';
import { encodeFill } from '../fill-log/fill-entry.ts';
import type { FillLog } from '../fill-log/fill-log.ts';
import type { Packs } from '../packs/packs.ts';

export interface ExplainInit {
  readonly current: { readonly value: EdgeConfig };
  readonly packs: Pick<Packs, 'get'>;
  readonly tiles: Pick<PackTiles, 'peek'>;
  readonly cache: Pick<AssetCache, 'peek'> & { readonly ram: Pick<AssetCache['ram'], 'peek'> };
  readonly reads: Pick<DiskReads, 'run'>;
  readonly fillLog: Pick<FillLog, 'proof'>;
}

const NOTHING = {
  tier: 'none',
  state: 'missing',
  address: null,
  size: null,
  media_type: null,
  pack: null,
  freshness: null,
  provenance: null,
  proof_problem: null,
  fillable: 'not_fillable',
} as const satisfies Omit<EdgeWhyDto, 'key'>;

export async function explainAsset(init: ExplainInit, target: AssetTarget, signal: AbortSignal): Promise<EdgeWhyDto> {
  if (target.kind === 'fetched') return await explainFetched(init, target.missing, signal);
  if (target.kind === 'tile') return await explainTile(init, target, signal);
  const suffix = target.kind === 'tilejson' ? 'json' : 'pmtiles';
  const key = `pack/${target.pack}.${suffix}`;
  const pack = packOf(init, target.pack);
  if (pack === null) return { ...NOTHING, key };
  const { info } = init.packs.get(target.pack)!.pack;
  if (target.kind === 'tilejson') {
    return { ...NOTHING, key, tier: 'pack', state: 'fresh', media_type: 'application/json', pack };
  }
  if (info.format !== 'pmtiles') return { ...NOTHING, key, pack };
  return { ...NOTHING, key, tier: 'pack', state: 'fresh', address: info.address, size: info.size, pack };
}

function packOf({ packs }: ExplainInit, name: string): EdgeWhyDto['pack'] {
  const mount = packs.get(name);
  return mount === undefined ? null : { name, address: mount.pack.info.address, format: mount.pack.info.format };
}

async function explainTile(init: ExplainInit, target: TileTarget, signal: AbortSignal): Promise<EdgeWhyDto> {
  const { packs, tiles } = init;
  const mount = packs.get(target.pack);
  const key = tileKey(
    target.pack,
    target.place,
    mount === undefined ? target.ext : canonicalExt(mount.pack.info.tile_type),
  );
  const why = { ...NOTHING, key, pack: packOf(init, target.pack) };
  const entry = await tiles.peek(target, signal).catch((error: unknown) => {
    if (isRonError(error, 'not_found')) return undefined;
    throw error;
  });
  if (entry === undefined) return why;
  const { size, etag, media_type } = entry.source;
  const address = etag === undefined ? null : (etag.slice(1, -1) as Address);
  return { ...why, tier: entry.tier, state: 'fresh', address, size, media_type: media_type ?? null };
}

async function explainFetched(init: ExplainInit, missing: Missing, signal: AbortSignal): Promise<EdgeWhyDto> {
  const { cache, current, reads } = init;
  const { key } = missing;
  const why = { ...NOTHING, key, fillable: fillableOf(missing, current.value) };
  const held = cache.ram.peek(key);
  if (held?.isNegative === true && held.isFresh) return { ...why, tier: 'ram', state: 'negative' };
  const inMemory = held?.asset?.meta;
  const meta = inMemory ?? (await reads.run(signal, () => cache.peek(key, signal)))?.meta;
  if (meta === undefined) return why;
  const freshness = freshnessDto(meta, current.value);
  return {
    ...why,
    tier: inMemory === undefined ? 'cas' : 'ram',
    state: freshness === null || freshness.is_fresh ? 'fresh' : 'stale',
    address: meta.address,
    size: meta.size,
    media_type: meta.media_type,
    freshness,
    provenance: provenanceDto(meta),
    ...(await proofOf(init.fillLog, meta)),
  };
}

function fillableOf(missing: Missing, config: EdgeConfig): EdgeFillable {
  try {
    requireFillable(missing, config);
    return 'yes';
  } catch (error) {
    if (isRonError(error, 'not_found')) return 'no_storage';
    if (isRonError(error, 'reject_policy')) return error.reason === 'amnesia' ? 'amnesia' : 'not_allowed';
    throw error;
  }
}

/** Null for objects of storage, which never become stale. */
function freshnessDto(meta: AssetMeta, config: EdgeConfig): EdgeFreshnessDto | null {
  const { freshness: fields } = meta;
  if (fields === undefined) return null;
  const { source, ...found } = freshnessOf(meta, config.fill, sched.wall_ms());
  return {
    is_fresh: found.isFresh,
    age_s: found.age_s,
    lifetime_s: found.lifetime_s,
    lifetime_from: source === 'object' ? 'none' : source,
    must_revalidate: found.mustRevalidate,
    apparent_age_s: found.apparent_ms / 1000,
    age_header_s: fields.age_s,
    response_delay_s: found.delay_ms / 1000,
    resident_time_s: found.resident_ms / 1000,
    cache_control: fields.cache_control ?? null,
    expires: fields.expires ?? null,
    date: fields.date ?? null,
    last_modified: fields.last_modified ?? null,
  };
}

function provenanceDto({ provenance, log_index }: AssetMeta): EdgeProvenanceDto | null {
  if (provenance === undefined) return null;
  const { host, dialled, certificate_key, etag, time_ms } = provenance;
  return { host, dialled, certificate_key, etag: etag ?? null, time_ms, log_index: log_index ?? null };
}

async function proofOf(
  log: ExplainInit['fillLog'],
  { provenance, log_index }: AssetMeta,
): Promise<{ readonly proof?: AuditProof; readonly proof_problem: string | null }> {
  if (provenance === undefined) return { proof_problem: null };
  if (log_index === undefined) return { proof_problem: 'the asset has no entry in the fill log' };
  try {
    const proof = await log.proof(log_index);
    if (proof === undefined) return { proof_problem: 'no checkpoint covers the entry yet' };
    if (proof.entry_b64 === Buffer.from(encodeFill(provenance)).toString('base64'))
      return { proof, proof_problem: null };
    return { proof_problem: `entry ${log_index} of the fill log belongs to another fill: the log was replaced` };
  } catch (error) {
    if (error instanceof RonError) return { proof_problem: error.message };
    throw error;
  }
}
