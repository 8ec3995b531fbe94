/** Opens what storage keeps objects on: a directory, or memory when it is to forget everything. */
import {
  Compactor,
  LocalVolume,
  MemoryVolume,
  ObjectStore,
  Uploads,
  type DamagedRecord,
  type LocalVolumeInit,
  type Volume,
  type VolumeState,
} from '@ron/cas';
import { assert, TokenBucket } from '@ron/kernel';
import type { Address } from '@ron/proto';
import type { StorageConfig } from './config.ts';

/** Something that happened to stored records, for the log and the metrics. */
export type EngineEvent =
  | { readonly kind: 'damaged'; readonly record: DamagedRecord }
  | { readonly kind: 'removed'; readonly address: Address }
  | { readonly kind: 'state'; readonly volume: string; readonly state: VolumeState }
  | { readonly kind: 'log damage'; readonly volume: string; readonly what: string }
  | { readonly kind: 'index rebuilt'; readonly volume: string; readonly why: string };

export interface Engine {
  readonly volume: Volume;
  /** Where the volume lies; undefined in amnesia. */
  readonly dir: string | undefined;
  readonly store: ObjectStore;
  readonly uploads: Uploads;
  readonly compactor: Compactor;
}

/** What a compaction may read or write at once. */
const COMPACT_BURST_BYTES = 4 * 1024 * 1024;

export interface EngineInit {
  readonly config: StorageConfig;
  readonly publish: (event: EngineEvent) => void;
  /** The file system below a directory. Default: the real one. */
  readonly fs?: LocalVolumeInit['fs'];
  readonly signal: AbortSignal;
}

export async function openEngine(init: EngineInit): Promise<Engine> {
  const { config, publish } = init;
  const { storage, amnesia } = config;
  const dir = amnesia.enabled ? undefined : config.data_dirs[0];
  const volume = amnesia.enabled ? new MemoryVolume({ bytes_max: amnesia.bytes_max }) : await openDirectory(dir, init);
  const store = new ObjectStore({
    volume,
    chunk_bytes: storage.chunk_size,
    cache_bytes: storage.cache_bytes,
    object_bytes_max: storage.object_bytes_max,
    lease_ms: storage.lease,
    onRemoved: (address) => publish({ kind: 'removed', address }),
  });
  const uploads = await Uploads.open({
    store,
    dir,
    fs: init.fs,
    expiry_ms: config.uploads.expiry,
    uploads_max: config.uploads.max,
  });
  const compactor = new Compactor({
    store,
    uploads,
    live_ratio: storage.compact_live_ratio,
    bucket: new TokenBucket('compaction', { rate_per_s: storage.compact_pacing, burst: COMPACT_BURST_BYTES }),
  });
  return { volume, dir, store, uploads, compactor };
}

async function openDirectory(dir: string | undefined, init: EngineInit): Promise<Volume> {
  const { config, publish, fs, signal } = init;
  assert(dir !== undefined, 'the configuration names a directory');
  return await LocalVolume.open({
    dir,
    segment_bytes: config.storage.segment_bytes,
    ...(fs && { fs }),
    onDamage: (record) => publish({ kind: 'damaged', record }),
    onState: (state) => publish({ kind: 'state', volume: dir, state }),
    onRebuild: (why) => publish({ kind: 'index rebuilt', volume: dir, why }),
    onLogDamage: ({ segment, offset, bytes, what }) =>
      publish({
        kind: 'log damage',
        volume: dir,
        what: `${what} of ${bytes} bytes in segment ${segment} at ${offset}`,
      }),
    signal,
  });
}
