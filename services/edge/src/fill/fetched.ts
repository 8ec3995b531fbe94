/** The result of a fetch, from an origin or from storage. */
import type { AssetCache, BodyWriter, StoredBody } from '../cache/asset-cache.ts';
import type { AssetMeta, CachedAsset } from '../cache/cached-asset.ts';

export type Fetched =
  /** 404, 410, or no such object. `isKept`: for `fill.negative_ttl`. */
  | { readonly kind: 'absent'; readonly isKept: boolean }
  | {
      readonly kind: 'asset';
      readonly how: 'fetched' | 'revalidated';
      readonly meta: AssetMeta;
      readonly body: StoredBody;
      /** False: for the client that led the fill only, and never stored. */
      readonly isStorable: boolean;
    };

/** Writes all chunks; on failure nothing is left. */
export async function writeBody(
  writer: BodyWriter,
  chunks: AsyncIterable<Uint8Array>,
  media_type: string,
  signal: AbortSignal,
): Promise<StoredBody> {
  try {
    for await (const chunk of chunks) await writer.write(chunk, signal);
    return await writer.finish(media_type, signal);
  } catch (error) {
    writer.abort();
    throw error;
  }
}

/** The body of an asset that the origin confirmed. */
export function bodyOf({ meta, source, tier }: CachedAsset): StoredBody {
  return { address: meta.address, size: meta.size, source, isOnDisk: tier === 'cas', discard: () => undefined };
}

export type BodySink = Pick<AssetCache, 'writer'>;
