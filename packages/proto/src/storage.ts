/** What storage and its callers say to each other, besides bytes: receipts, manifests, volumes, and work behind the scenes. */
import type { Address } from './address.ts';

/** How safe an object is. */
export interface Durability {
  /** Whether the bytes survive a power failure. */
  readonly fsynced: boolean;
  readonly copies: number;
  readonly target: number;
}

/** The answer to a write. */
export interface ObjectReceipt {
  readonly address: Address;
  readonly size: number;
  readonly durability: Durability;
}

/** The header `Ron-Durability`: `fsynced=1; copies=1; target=1` */
export function formatDurability({ fsynced, copies, target }: Durability): string {
  return `fsynced=${fsynced ? 1 : 0}; copies=${copies}; target=${target}`;
}

export function parseDurability(header: string | null): Durability | undefined {
  const match = /^fsynced=([01]); copies=(\d{1,4}); target=(\d{1,4})$/.exec(header ?? '');
  if (match === null) return undefined;
  return { fsynced: match[1] === '1', copies: Number(match[2]), target: Number(match[3]) };
}

/** What an object is made of. */
export interface ObjectManifest {
  readonly address: Address;
  readonly size: number;
  readonly media_type: string;
  readonly chunk_bytes: number;
  /** Chunk ids in hex. */
  readonly chunks: readonly string[];
  /** Chaining values in hex; empty for an object of one chunk. */
  readonly subtrees: readonly string[];
  readonly durability: Durability;
}

/** What an operator decides about a volume. */
export const VOLUME_VERBS = ['drain', 'undrain', 'lose', 'restore', 'remove'] as const;
export type VolumeVerb = (typeof VOLUME_VERBS)[number];

export interface VolumeInfo {
  /** A UUID, the same wherever its directory lies; absent while it is not known. */
  readonly id?: string;
  /** Its directory. */
  readonly name: string;
  /** Volumes of one domain fail together. */
  readonly domain: string;
  readonly weight: number;
  readonly life: 'active' | 'draining' | 'drained' | 'lost';
  readonly condition: string;
  /** What is wrong with it: why it takes no writes, cannot be emptied, or is not told what it missed. */
  readonly reason: string;
  /** False while it has not been told everything that was decided in its absence. */
  readonly is_current: boolean;
  readonly used_bytes: number;
  readonly segments: number;
}

/** How far the pass over a volume is, or the last one was. */
export interface ScrubInfo {
  readonly name: string;
  readonly used_bytes: number;
  readonly pass: number;
  readonly is_running: boolean;
  readonly records: number;
  readonly bytes: number;
  readonly bad: number;
  readonly begun_s: number;
  readonly ended_s: number;
  /** Why it could not be read to the end. */
  readonly problem?: string;
  /** Why the pass cannot end within its period. */
  readonly late?: string;
}

export interface VolumesAnswer {
  readonly volumes: readonly VolumeInfo[];
  readonly scrubs: readonly ScrubInfo[];
  /** Why nothing is reclaimed now: the volumes that have not answered completely. */
  readonly incomplete?: string;
  /** Verified chunks in memory. */
  readonly cache: { readonly used_bytes: number; readonly bytes_max: number };
}

export interface RepairStatus {
  readonly target: number;
  readonly observed: number;
  /** Records that lack something. */
  readonly deficit: number;
  readonly deficit_by_class: Readonly<Record<'last' | 'rf' | 'parity', number>>;
  /** Shards that lie in one place with another of their stripe, until there is a better one. */
  readonly crowded: number;
  /** Objects with missing parts, by the last compaction; absent before the first. */
  readonly broken?: number;
  readonly records: number;
  /** A plan has gone through everything. */
  readonly is_complete: boolean;
  readonly is_planning: boolean;
  readonly planned_ms?: number;
  readonly unreadable: readonly string[];
  readonly problems: readonly string[];
  readonly queued: number;
  readonly inflight: number;
  readonly skipped_total: number;
  readonly results: Readonly<Record<'repaired' | 'whole' | 'gone' | 'failed', number>>;
  readonly bytes_total: number;
  readonly rate_bytes_per_s: number;
  /** What it is now, out of consideration for reads. */
  readonly allowed_bytes_per_s: number;
  readonly stripes?: {
    readonly objects: number;
    readonly stripes: number;
    readonly failed: number;
    /** Chunks that no stripe takes: they have copies. */
    readonly lone: number;
    readonly problem?: string;
  };
}

/** Long work that an operator sets going. */
export type TaskKind = 'compact' | 'repair' | 'scrub';

export interface Task<K extends string = TaskKind> {
  readonly id: string;
  readonly kind: K;
  readonly state: 'running' | 'done' | 'failed' | 'canceled';
  /** Unix time. */
  readonly started_ms: number;
  readonly ended_ms?: number;
  /** How far it is, or was. */
  readonly progress: Readonly<Record<string, unknown>>;
  /** Why it failed. */
  readonly problem?: string;
}
