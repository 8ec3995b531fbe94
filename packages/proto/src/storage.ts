/** Answers of storage besides object bytes: receipts, manifests, volumes, repair, scrub and administrative tasks. */
import type { Address } from './address.ts';

/** How well an object is protected against loss. */
export interface Durability {
  /** Whether the bytes survive a power failure. */
  readonly fsynced: boolean;
  readonly copies: number;
  readonly target: number;
}

/** The answer to a write as clients see it. */
export interface Receipt {
  readonly address: Address;
  readonly size: number;
  /** Undefined when the server did not state it. */
  readonly durability: Durability | undefined;
}

/** The answer to a write as storage sends it. */
export interface ObjectReceipt extends Receipt {
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

/** The parts of an object. */
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

/** The commands that an operator can give for a volume. */
export const VOLUME_VERBS = ['drain', 'undrain', 'lose', 'restore', 'remove'] as const;
export type VolumeVerb = (typeof VOLUME_VERBS)[number];

/** `gone`: the directory that was opened no longer exists. */
export type VolumeCondition = 'ok' | 'full' | 'read_only' | 'failed' | 'gone';

export interface VolumeInfo {
  /** A UUID that stays the same when the directory moves; absent while it is unknown. */
  readonly id?: string;
  /** Its directory. */
  readonly name: string;
  /** Volumes of one domain fail together. */
  readonly domain: string;
  readonly weight: number;
  readonly life: 'active' | 'draining' | 'drained' | 'lost';
  readonly condition: VolumeCondition;
  /** Why it accepts no writes, cannot be drained, or cannot receive missed deletions. Empty without a problem. */
  readonly reason: string;
  /** False until it has received all decisions that it missed while it was absent. */
  readonly is_current: boolean;
  readonly used_bytes: number;
  readonly segments: number;
}

/** Progress of the current scrub pass over a volume, or the result of the last one. */
export interface ScrubPass {
  readonly pass: number;
  readonly records: number;
  readonly bytes: number;
  readonly bad: number;
  readonly begun_s: number;
  readonly ended_s: number;
  /** Why the pass stopped before the end of the volume. */
  readonly problem?: string;
}

export interface ScrubInfo extends ScrubPass {
  readonly name: string;
  readonly used_bytes: number;
  readonly is_running: boolean;
  /** Why the pass cannot end within its period. */
  readonly late?: string;
}

export interface VolumesAnswer {
  readonly volumes: readonly VolumeInfo[];
  readonly scrubs: readonly ScrubInfo[];
  /** Why compaction is suspended: the volumes whose inventory is incomplete. */
  readonly incomplete?: string;
  /** Verified chunks in memory. */
  readonly cache: { readonly used_bytes: number; readonly bytes_max: number };
}

/** Repairs by urgency, the most urgent first: last copies, copies that the replication factor requires, parity shards. */
export const REPAIR_CLASSES = ['last', 'rf', 'parity'] as const;
export type RepairClass = (typeof REPAIR_CLASSES)[number];

/** `whole`: nothing was missing. `gone`: the record was removed meanwhile. */
export type RepairResult = 'repaired' | 'whole' | 'gone';

export interface RepairStatus {
  readonly target: number;
  readonly observed: number;
  /** Records with missing copies or shards. */
  readonly deficit: number;
  readonly deficit_by_class: Readonly<Record<RepairClass, number>>;
  /** Shards that share a failure domain with another shard of their stripe, for lack of a better place. */
  readonly crowded: number;
  /** Objects with missing chunks, counted by the last compaction; absent before the first. */
  readonly broken?: number;
  readonly records: number;
  /** A plan has covered every record. */
  readonly is_complete: boolean;
  readonly is_planning: boolean;
  readonly planned_ms?: number;
  readonly unreadable: readonly string[];
  readonly problems: readonly string[];
  readonly queued: number;
  readonly inflight: number;
  readonly skipped_total: number;
  readonly results: Readonly<Record<RepairResult | 'failed', number>>;
  readonly bytes_total: number;
  readonly rate_bytes_per_s: number;
  /** The current limit, lowered while clients wait for the disks. */
  readonly allowed_bytes_per_s: number;
  readonly stripes?: {
    readonly objects: number;
    readonly stripes: number;
    readonly failed: number;
    /** Chunks outside of stripes; they are replicated. */
    readonly lone: number;
    readonly problem?: string;
  };
}

/** Long-running work that an operator starts. */
export type TaskKind = 'compact' | 'repair' | 'scrub';

export interface Task<K extends string = TaskKind> {
  readonly id: string;
  readonly kind: K;
  readonly state: 'running' | 'done' | 'failed' | 'canceled';
  /** Unix time. */
  readonly started_ms: number;
  readonly ended_ms?: number;
  readonly progress: Readonly<Record<string, unknown>>;
  /** The reason of a failure. */
  readonly problem?: string;
}
