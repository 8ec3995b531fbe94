/** Opens the object store and its volumes: a directory, several, or memory in amnesia. */
import { join } from 'node:path';
import {
  Compactor,
  LocalVolume,
  ObjectStore,
  Uploads,
  type JournalPlace,
  type JournalPlaces,
  type JournalScrub,
  type DamagedRecord,
  type Volume,
  type VolumeState,
} from '@ron/cas';
import type { Member } from '@ron/durability';
import { TokenBucket } from '@ron/kernel';
import type { Address } from '@ron/proto';
import type { VolumesInit } from './volume-slot.ts';
import { Volumes } from './volumes.ts';

/** Events about stored records, for the log and the metrics. */
export type EngineEvent =
  | { readonly kind: 'damaged'; readonly record: DamagedRecord }
  | { readonly kind: 'removed'; readonly address: Address }
  /** A writer stated another media type for a stored object. */
  | { readonly kind: 'retyped'; readonly address: Address }
  | {
      readonly kind: 'volume';
      readonly change: 'joined' | 'draining' | 'staying' | 'lost' | 'removed' | 'single';
      readonly volume: string;
      readonly reason: string;
    }
  | { readonly kind: 'state'; readonly volume: string; readonly state: VolumeState }
  | { readonly kind: 'log damage'; readonly volume: string; readonly what: string }
  | { readonly kind: 'index rebuilt'; readonly volume: string; readonly why: string };

export interface Engine extends AsyncDisposable {
  readonly volumes: Volumes;
  /** The only volume, or the set of all. */
  readonly volume: Volume;
  /** The directory for other files, such as journals; undefined in amnesia. */
  readonly dir: string | undefined;
  readonly store: ObjectStore;
  readonly uploads: Uploads;
  readonly compactor: Compactor;
}

/** Bytes that a compaction may read or write at once. */
const COMPACT_BURST_BYTES = 4 * 1024 * 1024;

export interface EngineInit extends VolumesInit {
  /** Called for each object whose record was written. Must not throw. */
  readonly onStored: (address: Address) => void;
}

export async function openEngine(init: EngineInit): Promise<Engine> {
  const { config, publish } = init;
  const { storage } = config;
  const volumes = await Volumes.open(init);
  const { volume, dir } = volumes;
  const store = new ObjectStore({
    volume,
    chunk_bytes: storage.chunk_size,
    cache_bytes: storage.cache_bytes,
    object_bytes_max: storage.object_bytes_max,
    lease_ms: storage.lease,
    onStored: init.onStored,
    onRemoved: (address) => publish({ kind: 'removed', address }),
    onRetyped: (address) => publish({ kind: 'retyped', address }),
  });
  const uploads = await Uploads.open({
    store,
    ...(volumes.isSingle ? { dir, fs: init.fs } : { places: journalPlaces(volumes) }),
    expiry_ms: config.uploads.expiry,
    uploads_max: config.uploads.max,
    onDamage: ({ volume: name, id_hex, what }) =>
      publish({ kind: 'log damage', volume: name, what: `${what}: ${id_hex.slice(0, 8)}` }),
  });
  const compactor = new Compactor({
    store,
    uploads,
    live_ratio: storage.compact_live_ratio,
    bucket: new TokenBucket('compaction', { rate_per_s: storage.compact_pacing, burst: COMPACT_BURST_BYTES }),
  });
  return {
    volumes,
    volume,
    dir,
    store,
    uploads,
    compactor,
    async [Symbol.asyncDispose]() {
      // Uploads persist their progress before the volumes close.
      await uploads.close();
      await volumes.close();
    },
  };
}

/** Checks the journals of uploads beside a volume. */
export const journalScrubOf =
  ({ uploads }: Engine) =>
  async (volume: Volume, signal: AbortSignal): Promise<JournalScrub> =>
    volume instanceof LocalVolume
      ? await uploads.scrubJournals(join(volume.dir, 'uploads'), signal)
      : { bytes: 0, records: 0, bad: 0 };

/** Journals have as many copies as chunks, so that the loss of a volume loses no upload. */
function journalPlaces({ set }: Volumes): JournalPlaces {
  const placesOf = (members: readonly Member[]): JournalPlace[] =>
    members.flatMap(({ volume }) =>
      volume instanceof LocalVolume ? [{ dir: join(volume.dir, 'uploads'), fs: volume.log.files.fs }] : [],
    );
  return {
    all: () => placesOf(set.members.filter((member) => member.isReadable)),
    now: () => placesOf(set.members.filter((member) => member.takesRecords)),
    copies: set.replication_factor,
    copies_min: set.write_min,
  };
}
