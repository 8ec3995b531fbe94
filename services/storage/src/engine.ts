/** Opens what storage keeps objects on: a directory, or memory when it is to forget everything. */
import { LocalVolume, MemoryVolume, ObjectStore, type DamagedRecord, type Volume, type VolumeState } from '@ron/cas';
import { RonError } from '@ron/kernel';
import type { StorageConfig } from './config.ts';

/** Something that happened to stored records, for the log and the metrics. */
export type EngineEvent =
  | { readonly kind: 'damaged'; readonly record: DamagedRecord }
  | { readonly kind: 'state'; readonly volume: string; readonly state: VolumeState }
  | { readonly kind: 'log damage'; readonly volume: string; readonly what: string }
  | { readonly kind: 'index rebuilt'; readonly volume: string; readonly why: string };

export interface Engine {
  readonly volume: Volume;
  readonly store: ObjectStore;
}

export async function openEngine(
  config: StorageConfig,
  publish: (event: EngineEvent) => void,
  signal: AbortSignal,
): Promise<Engine> {
  const { storage, amnesia } = config;
  if (!Number.isInteger(Math.log2(storage.chunk_size))) {
    throw new RonError('internal', `storage.chunk_size must be a power of two, it is ${storage.chunk_size}`);
  }
  const volume = amnesia.enabled
    ? new MemoryVolume({ bytes_max: amnesia.bytes_max })
    : await openDirectory(config, publish, signal);
  const store = new ObjectStore({
    volume,
    chunk_bytes: storage.chunk_size,
    cache_bytes: storage.cache_bytes,
    object_bytes_max: storage.object_bytes_max,
  });
  return { volume, store };
}

async function openDirectory(
  config: StorageConfig,
  publish: (event: EngineEvent) => void,
  signal: AbortSignal,
): Promise<Volume> {
  const [dir] = config.data_dirs;
  if (dir === undefined) {
    throw new RonError('internal', 'data_dirs is empty: name a directory, or set amnesia.enabled to keep nothing');
  }
  return await LocalVolume.open({
    dir,
    segment_bytes: config.storage.segment_bytes,
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
