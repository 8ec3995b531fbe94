/**
 * Storage as an operator sees it: its volumes, and the work that keeps what they hold whole.
 *
 * Promise: a task that is started twice is one task; deciding twice about a volume is refused the second time or changes
 * nothing. Bound: one answer at a time. Cancellation: every method takes a signal besides the client's own.
 */
import type { CallOptions } from './storage-client.ts';
import { Transport, type TransportInit } from './transport.ts';

export type VolumeVerb = 'drain' | 'undrain' | 'lose' | 'restore' | 'remove';
export type TaskKind = 'compact' | 'repair' | 'scrub';

export interface VolumeInfo {
  readonly name: string;
  /** Volumes of one domain fail together. */
  readonly domain: string;
  readonly weight: number;
  readonly life: 'active' | 'draining' | 'drained' | 'lost';
  readonly condition: string;
  /** Why it takes no writes. */
  readonly reason: string;
  /** False while it has not been told what it missed. */
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
}

export interface VolumesAnswer {
  readonly volumes: readonly VolumeInfo[];
  readonly scrubs: readonly ScrubInfo[];
}

export interface RepairStatus {
  readonly target: number;
  readonly observed: number;
  /** Records that lack something. */
  readonly deficit: number;
  readonly deficit_by_class: Readonly<Record<'last' | 'rf' | 'parity', number>>;
  /** Shards that lie in one place with another of their stripe, until there is a better one. */
  readonly crowded: number;
  readonly records: number;
  /** A plan has gone through everything. */
  readonly is_complete: boolean;
  readonly is_planning: boolean;
  readonly planned_ms?: number;
  readonly unreadable: readonly string[];
  readonly problems: readonly string[];
  readonly queued: number;
  readonly inflight: number;
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

export interface Task {
  readonly id: string;
  readonly kind: TaskKind;
  readonly state: 'running' | 'done' | 'failed' | 'canceled';
  readonly started_ms: number;
  readonly ended_ms?: number;
  readonly progress: Readonly<Record<string, unknown>>;
  readonly problem?: string;
}

export class StorageAdmin {
  readonly #transport: Transport;

  constructor(init: TransportInit) {
    this.#transport = new Transport(init);
  }

  volumes(init: CallOptions = {}): Promise<VolumesAnswer> {
    return this.#call('volumes', 'GET', 'admin/volumes', init);
  }

  decide(verb: VolumeVerb, volume: string, init: CallOptions & { force?: boolean } = {}): Promise<VolumesAnswer> {
    const query = new URLSearchParams({ volume, ...(init.force === true && { force: 'true' }) });
    return this.#call('volumes', 'POST', `admin/volumes/${verb}?${query.toString()}`, init);
  }

  repairStatus(init: CallOptions = {}): Promise<RepairStatus> {
    return this.#call('repair', 'GET', 'admin/repair', init);
  }

  start(kind: TaskKind, init: CallOptions = {}): Promise<Task> {
    return this.#call(kind, 'POST', `admin/${kind}`, init);
  }

  task(id: string, init: CallOptions = {}): Promise<Task> {
    return this.#call('task', 'GET', `admin/tasks/${encodeURIComponent(id)}`, init);
  }

  #call<T>(op: string, method: string, path: string, init: CallOptions): Promise<T> {
    const work = async (signal: AbortSignal): Promise<T> => {
      const response = await this.#transport.send(op, path, { method, signal });
      return (await response.json()) as T;
    };
    return this.#transport.call(op, work, { signal: init.signal });
  }
}
