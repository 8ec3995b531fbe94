/**
 * Assets in memory: tiles of packs, fetched assets, and keys that have none.
 *
 * Contract: as `AssetRam`. A tile whose mount is retired is not given, and removed when it is met.
 * Bound: `bytes_max`, with keys and overhead counted by `Cache`. Overflow: eviction that keeps hot entries during scans.
 */
import { Cache } from '@ron/cache';
import type { AssetKey } from '../assets/asset-key.ts';
import type { AssetRam, RamAsset, RamLifetime } from './asset-cache.ts';

export class RamAssets implements AssetRam {
  readonly #cache: Cache<RamAsset>;

  constructor(bytes_max: number) {
    this.#cache = new Cache({ bytes_max });
  }

  get bytes(): number {
    return this.#cache.bytes;
  }

  get(key: AssetKey): RamAsset | undefined {
    const asset = this.#cache.get(key);
    return asset?.owner?.isRetired === true ? this.delete(key) : asset;
  }

  find(key: AssetKey): ReturnType<AssetRam['find']> {
    const found = this.#cache.find(key);
    if (found === undefined || found.state === 'expired') return undefined;
    if (found.value?.owner?.isRetired === true) return this.delete(key);
    return { asset: found.value, isNegative: found.isNegative, isFresh: found.state === 'fresh' };
  }

  peek(key: AssetKey): ReturnType<AssetRam['peek']> {
    const found = this.#cache.inspect(key);
    if (found === undefined || found.state === 'expired' || found.value?.owner?.isRetired === true) return undefined;
    return { asset: found.value, isNegative: found.isNegative, isFresh: found.state === 'fresh' };
  }

  /** Whether there is a fresh asset. Does not count as a use. */
  has(key: AssetKey): boolean {
    return this.#cache.has(key);
  }

  /** False if it is too large to keep. */
  set(key: AssetKey, asset: RamAsset, bytes: number, lifetime: RamLifetime): boolean {
    return this.#cache.set(key, asset, bytes, lifetime);
  }

  setNegative(key: AssetKey, ttl_ms: number): void {
    this.#cache.setNegative(key, { ttl_ms });
  }

  delete(key: AssetKey): undefined {
    this.#cache.delete(key);
  }

  deleteWhere(matches: (key: AssetKey, asset: RamAsset | undefined) => boolean): number {
    return this.#cache.deleteWhere(matches);
  }
}
