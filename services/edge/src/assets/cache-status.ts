/** `Cache-Status` (RFC 9211) of the answers of edge. */
import type { ByteDescription } from '@ron/ingress';
import type { FillResult } from '../fill/fills.ts';

export type CacheStatus = NonNullable<ByteDescription['cache_status']>;
export type HitTier = 'pack' | 'ram' | 'cas';

/** `expires_ms`: when the asset becomes stale (Unix ms). Tiles and objects never do. */
export function hitStatus(tier: HitTier, expires_ms?: number): CacheStatus {
  return { text: HITS[tier], expires_ms };
}

const HITS: Readonly<Record<HitTier, string>> = {
  pack: 'ron-edge; hit; detail=pack',
  ram: 'ron-edge; hit; detail=ram',
  cas: 'ron-edge; hit; detail=cas',
};

/** `isStale`: a stale asset was revalidated or replaced. */
export function fillStatus(
  { how, isStored, isCollapsed }: Pick<FillResult, 'how' | 'isStored' | 'isCollapsed'>,
  isStale: boolean,
  expires_ms?: number,
): CacheStatus {
  let text = isStale ? 'ron-edge; fwd=stale' : 'ron-edge; fwd=miss';
  if (how === 'revalidated') text += '; fwd-status=304';
  if (isStored) text += '; stored';
  if (isCollapsed) text += '; collapsed';
  return { text, expires_ms };
}
