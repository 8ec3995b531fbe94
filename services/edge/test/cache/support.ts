/** Shared by the tests of the cache: a cache in a directory or in memory, and fills without an origin. */
import { blake3 } from '@napi-rs/blake-hash';
import { loadConfig } from '@ron/config';
import { schema } from '@ron/edge';
import type { ByteSource } from '@ron/ingress';
import { realFileSystem, type FileSystem } from '@ron/log';
import { formatAddress } from '@ron/proto';
import { prepareAsset } from '../../src/assets/fetched-answer.ts';
import type { StoredBody } from '../../src/cache/asset-cache.ts';
import type { AssetMeta } from '../../src/cache/cached-asset.ts';
import { openCache } from '../../src/cache/open-cache.ts';
import type { TieredCache } from '../../src/cache/tiered-cache.ts';

export const { signal } = new AbortController();
export const KIB = 1024;
export const MIB = KIB * KIB;

export interface TestCache extends AsyncDisposable {
  readonly cache: TieredCache;
  readonly problems: string[];
  /** Stops the evictor and closes the cache. Idempotent. */
  close(): Promise<void>;
}

export interface TestCacheInit {
  /** Default: amnesia. */
  readonly dir?: string;
  readonly flags?: readonly string[];
  readonly fs?: FileSystem;
}

export async function startCache(init: TestCacheInit = {}): Promise<TestCache> {
  const { dir, flags = [], fs = realFileSystem } = init;
  const where = dir === undefined ? '--amnesia.enabled=true' : `--data_dir=${dir}`;
  const config = loadConfig({ schema, flags: [where, ...flags] });
  const problems: string[] = [];
  const cache = await openCache({
    config,
    dir,
    fs,
    prepare: (meta, bytes) => prepareAsset(meta, bytes, config.fill),
    onProblem: (problem) => problems.push(problem),
    signal,
  });
  const stopping = new AbortController();
  const running = cache.run(stopping.signal);
  const close = async (): Promise<void> => {
    stopping.abort();
    await running;
    await cache.close();
  };
  return { cache, problems, close, [Symbol.asyncDispose]: close };
}

/** Bytes that differ for each seed, so that no two bodies share an object. */
export function bodyOf(size: number, seed: number): Buffer {
  const bytes = Buffer.alloc(size, `asset ${seed} `);
  bytes.writeUInt32LE(seed >>> 0, Math.max(0, size - 4));
  return bytes;
}

export const keyOf = (name: number | string): string => `live/tiles.example.org/${name}.png`;

export function metaOf(key: string, bytes: Uint8Array): AssetMeta {
  const address = formatAddress(blake3(Buffer.from(bytes)));
  const size = bytes.length;
  const time_ms = Date.now();
  return {
    key,
    address,
    size,
    media_type: 'image/png',
    etag: '"1"',
    freshness: {
      cache_control: 'max-age=3600',
      expires: undefined,
      date: new Date(time_ms).toUTCString(),
      last_modified: undefined,
      age_s: 0,
      request_ms: time_ms,
      response_ms: time_ms,
    },
    provenance: {
      key,
      host: 'tiles.example.org',
      dialled: '192.0.2.1:443',
      certificate_key: 'ab'.repeat(32),
      etag: '"1"',
      size,
      address,
      time_ms,
    },
    log_index: 7,
  };
}

/** The body as a fill writes it, in pieces. */
export async function write(cache: TieredCache, bytes: Uint8Array, bytes_max = 10 * MIB): Promise<StoredBody> {
  const writer = cache.writer(bytes_max);
  try {
    for (let at = 0; at < bytes.length; at += 40_000) await writer.write(bytes.subarray(at, at + 40_000), signal);
    return await writer.finish('image/png', signal);
  } catch (error) {
    writer.abort();
    throw error;
  }
}

/** A whole fill; whether it is kept. */
export async function fill(cache: TieredCache, key: string, bytes: Uint8Array): Promise<boolean> {
  const { generation } = cache;
  const body = await write(cache, bytes);
  return (await cache.keep(metaOf(key, bytes), body, generation, signal)) === 'kept';
}

export async function bytesOf(source: ByteSource): Promise<Buffer> {
  const parts: Uint8Array[] = [];
  for await (const batch of source.read(0, source.size, signal)) parts.push(Buffer.concat(batch));
  return Buffer.concat(parts);
}

/** The bytes of an asset and where they came from. */
export async function read(cache: TieredCache, key: string): Promise<{ bytes: Buffer; tier: string } | undefined> {
  const found = await cache.find(key, signal);
  return found && { bytes: await bytesOf(found.source), tier: found.tier };
}

/** Empties the memory, so that the next look-up goes to disk. */
export const forgetRam = (cache: TieredCache): void => void cache.ram.deleteWhere(() => true);
