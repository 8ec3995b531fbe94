/**
 * A supervisor's records of its tasks: one for each kind, one for each long-lived instance, and counters.
 *
 * Contract: plain state, and its totals and health; only the supervisor changes it.
 * Bound: an instance remembers at most `restarts_max + 1` crashes; a one-shot task leaves nothing but counts.
 */
import { type Timer } from '../sched.ts';

export type Criticality = 'critical' | 'important' | 'optional';

export interface TaskContext {
  readonly kind: string;
  /** Which instance of its kind, from 0; a one-shot has -1. */
  readonly index: number;
  /** Aborted when the task must end now: the drain took too long, or it was killed. */
  readonly signal: AbortSignal;
  /** Aborted when draining starts: finish the current work, take nothing new, return. */
  readonly stopping: AbortSignal;
}

export interface TaskTotals {
  readonly kind: string;
  /** Tasks that run now. */
  readonly live: number;
  /** Every start: first ones, restarts and one-shots. */
  readonly spawned_total: number;
  readonly restarted_total: number;
  readonly crashed_total: number;
  /** Ended by obeying the request to stop. */
  readonly canceled_total: number;
  /** Had to be aborted because they outlived the drain. */
  readonly aborted_total: number;
}

export interface KindHealth {
  readonly kind: string;
  readonly criticality: Criticality;
  /** `failed`: an instance stays down. `restarting`: one waits for its restart. */
  readonly state: 'running' | 'restarting' | 'failed' | 'done' | 'stopped';
  readonly live: number;
  readonly wanted: number;
  readonly last_error: string | undefined;
}

export type InstanceState = 'running' | 'restarting' | 'failed' | 'done' | 'stopped';

export interface Instance {
  readonly record: KindRecord;
  readonly index: number;
  state: InstanceState;
  controller: AbortController | undefined;
  restart: Timer | undefined;
  /** When it crashed, within the window only: at most `restarts_max + 1` entries. */
  crashed_at_ms: number[];
  last_error: unknown;
}

export interface KindRecord {
  readonly kind: string;
  /** Undefined for a kind of which only one-shots were run. */
  spawned: { criticality: Criticality; restarts_max: number; task: (ctx: TaskContext) => Promise<void> } | undefined;
  readonly instances: Instance[];
  /** All one-shots of a kind share one context, so that running one allocates nothing that stays. */
  readonly oneShot: TaskContext;
  oneShots: number;
  live: number;
  spawned_total: number;
  restarted_total: number;
  crashed_total: number;
  canceled_total: number;
  aborted_total: number;
}

export function newInstance(record: KindRecord, index: number): Instance {
  return {
    record,
    index,
    state: 'stopped',
    controller: undefined,
    restart: undefined,
    crashed_at_ms: [],
    last_error: undefined,
  };
}

export function newRecord(kind: string, signal: AbortSignal, stopping: AbortSignal): KindRecord {
  return {
    kind,
    spawned: undefined,
    instances: [],
    oneShot: { kind, index: -1, signal, stopping },
    oneShots: 0,
    live: 0,
    spawned_total: 0,
    restarted_total: 0,
    crashed_total: 0,
    canceled_total: 0,
    aborted_total: 0,
  };
}

export function totalsOf(record: KindRecord): TaskTotals {
  const { kind, live, spawned_total, restarted_total, crashed_total, canceled_total, aborted_total } = record;
  return { kind, live, spawned_total, restarted_total, crashed_total, canceled_total, aborted_total };
}

/** Undefined for a kind of which only one-shots were run: it has no state to be in. */
export function healthOf({ kind, spawned, instances }: KindRecord): KindHealth | undefined {
  if (spawned === undefined) return undefined;
  const has = (state: InstanceState): boolean => instances.some((instance) => instance.state === state);
  const state = (['failed', 'restarting', 'running', 'done'] as const).find(has) ?? 'stopped';
  const live = instances.filter((instance) => instance.state === 'running').length;
  const crashed = instances.find((instance) => instance.last_error !== undefined);
  const last_error = crashed === undefined ? undefined : errorText(crashed.last_error);
  return { kind, criticality: spawned.criticality, state, live, wanted: instances.length, last_error };
}

function errorText(error: unknown): string {
  return error instanceof Error ? `${error.name}: ${error.message}` : String(error);
}
