/** The cache of fetched assets, in memory and on disk, as its users see it. */
import type { ByteSource, FastEntry } from '@ron/ingress';
import type { Address } from '@ron/proto';
import type { AssetKey } from '../assets/asset-key.ts';
import type { AssetMeta, CachedAsset } from './cached-asset.ts';

/** An asset in memory, prepared for the fast path. Tiles of packs are kept in the same memory. */
export interface RamAsset {
  readonly entry: FastEntry;
  /** Undefined for tiles of packs. */
  readonly meta: AssetMeta | undefined;
  /** The validity of the mount of a tile: once that is retired, the entry is not used. It does not keep the pack in memory. */
  readonly owner: { readonly isRetired: boolean } | undefined;
}

export interface FoundInRam {
  readonly asset: RamAsset | undefined;
  readonly isNegative: boolean;
  readonly isFresh: boolean;
}

export interface RamLifetime {
  readonly ttl_ms?: number;
  readonly stale_ms?: number;
}

/** One bounded memory for all assets: `cache.ram_bytes`, resistant to scans. */
export interface AssetRam {
  readonly bytes: number;
  /** A fresh asset. One map lookup. */
  get(key: AssetKey): RamAsset | undefined;
  /** A fresh or stale asset, or a negative entry. */
  find(key: AssetKey): FoundInRam | undefined;
  /** The same, without counting as a use. */
  peek(key: AssetKey): FoundInRam | undefined;
  set(key: AssetKey, asset: RamAsset, bytes: number, lifetime: RamLifetime): void;
  setNegative(key: AssetKey, ttl_ms: number): void;
  delete(key: AssetKey): void;
  /** Deletes the keys that match; returns their number. */
  deleteWhere(matches: (key: AssetKey) => boolean): number;
}

/** Takes the body of a fill as it arrives: at most 1 MiB of it is in memory. */
export interface BodyWriter {
  /** Throws `payload_too_large` above the limit. */
  write(chunk: Uint8Array, signal: AbortSignal): Promise<void>;
  /** The stored body; in memory too if it is small. On a failed disk, a small body is in memory only. */
  finish(media_type: string, signal: AbortSignal): Promise<StoredBody>;
  abort(): void;
}

export interface StoredBody {
  readonly address: Address;
  readonly size: number;
  /** The bytes, verified as they are read. */
  readonly source: ByteSource;
  /** Whether the disk has it, so that a note may refer to it. */
  readonly isOnDisk: boolean;
  /** For a body that is not going to be kept. Idempotent. Answers that read it go on. */
  discard(): void;
}

export type PurgeSelection =
  | { readonly key: AssetKey }
  | { readonly prefix: AssetKey }
  /** `host` or `host:port`. */
  | { readonly host: string };

/** `purged`: a purge came after the generation. `not_stored`: neither the disk nor memory took the asset. */
export type KeepOutcome = 'kept' | 'purged' | 'not_stored';

export interface AssetCache {
  readonly ram: AssetRam;
  /** Why assets are kept in memory only; undefined if the disk works. */
  readonly problem: string | undefined;
  readonly disk_bytes: number;
  /** Raised by each purge, in the same synchronous step in which its entries become unreadable. */
  readonly generation: number;
  /** The asset from memory or disk, fresh or stale. Marks it as used. */
  find(key: AssetKey, signal: AbortSignal): Promise<CachedAsset | undefined>;
  /** The same without its bytes: it is not marked as used, and not put into memory. */
  peek(key: AssetKey, signal: AbortSignal): Promise<Pick<CachedAsset, 'meta' | 'tier'> | undefined>;
  /** `expected_bytes`: the size, if it is known; it saves copies. */
  writer(bytes_max: number, expected_bytes?: number): BodyWriter;
  /**
   * Makes an asset findable: writes its note, then puts it into memory. Only the task `fill_log` calls it.
   */
  keep(meta: AssetMeta, body: StoredBody, generation: number, signal: AbortSignal): Promise<KeepOutcome>;
  /**
   * Removes an asset that its origin has withdrawn, in the step of the call, and its negative entry. A `keep` in progress keeps
   * nothing. The evictor removes it from disk.
   */
  withdraw(key: AssetKey): void;
  /** Removes assets and negative entries; returns the number of assets. Older fills are not kept afterwards. */
  purge(selection: PurgeSelection, signal: AbortSignal): Promise<number>;
}
