/** Opens the cache of edge. [edge I-2] Its disk has one writer: the log of its volume. */
import { join } from 'node:path';
import type { FileSystem } from '@ron/log';
import type { EdgeConfig } from '../config.ts';
import { AssetDisk } from './asset-disk.ts';
import { RamAssets } from './ram-assets.ts';
import { TieredCache, type TieredCacheInit } from './tiered-cache.ts';

export interface OpenCacheInit {
  readonly config: EdgeConfig;
  /** The data directory; undefined in amnesia. */
  readonly dir: string | undefined;
  readonly fs: FileSystem;
  readonly prepare: TieredCacheInit['prepare'];
  readonly onProblem: (problem: string) => void;
  readonly signal: AbortSignal;
}

/** The share of memory for bodies that are still being fetched. */
const BODIES_SHARE = 1 / 4;
/** [edge I-4] Of a look-up on disk: the rest of the request's time is for a fill. */
const FIND_MS = 1000;

export async function openCache(init: OpenCacheInit): Promise<TieredCache> {
  const { config, dir, fs, prepare, onProblem, signal } = init;
  const { ram_bytes, disk_bytes } = config.cache;
  if (dir === undefined) {
    // One bound for all memory of fetched assets.
    const bodies_bytes_max = config.amnesia.bytes_max * BODIES_SHARE;
    const ram = new RamAssets(config.amnesia.bytes_max - bodies_bytes_max);
    return new TieredCache({ ram, disk: undefined, bodies_bytes_max, prepare });
  }
  const ram = new RamAssets(ram_bytes);
  const disk = await AssetDisk.open({
    dir: join(dir, 'cache'),
    fs,
    bytes_max: disk_bytes,
    // The keys of assets on disk take at most as much memory as assets in memory.
    names_bytes_max: ram_bytes,
    isHot: (key) => ram.has(key),
    onProblem,
    signal,
  });
  const bodies_bytes_max = Math.max(ram_bytes * BODIES_SHARE, config.fill.object_bytes_max);
  return new TieredCache({ ram, disk, bodies_bytes_max, find_ms: FIND_MS, prepare });
}
