/**
 * The time of the last cosignature, stored so that a restart does not begin the wait for the witness anew.
 *
 * Contract: `age_ms` is the time from the last cosignature to this start. Without one it counts from the last state of the
 * anchor: the creation of the vault, its last checkpoint or shutdown. Both times come from the wall clock of kms. If it was set
 * back, the age is 0, and `begin` stores the present time, so one such step adds at most one limit. If it was set ahead, the
 * age is too large until the next cosignature. A cosignature ends both errors. A change is durable when its call resolves.
 * Bound: one record. Cancellation: by the signal.
 */
import { documentOf, Table, type RecordStore } from '@ron/custody/store';
import { sched } from '@ron/kernel';
import type { Anchor } from './anchor.ts';
import { META } from './tables.ts';

interface Cosigned {
  /** Unix time. */
  readonly time_ms: number;
}

/** Not a part of the anchor, which the checkpointer replaces at the same time. */
const COSIGNED = new Table<Cosigned>(META);
const COSIGNED_KEY = 'cosigned';

export interface LastCosigned {
  /** At the start of the process. */
  readonly age_ms: number;
  /** Stores the time from which `age_ms` counts, unless it is stored. Call it before signing without a witness. */
  begin(signal: AbortSignal): Promise<void>;
  /** Stores the present time: the witness has cosigned. */
  renew(signal: AbortSignal): Promise<void>;
}

export function lastCosignedOf(store: RecordStore, anchor: Anchor): LastCosigned {
  const document = documentOf(store, COSIGNED, COSIGNED_KEY);
  const now_ms = sched.wall_ms();
  const from_ms = Math.min(document.value?.time_ms ?? anchor.time_ms, now_ms);
  let isStored = document.value?.time_ms === from_ms;
  const write = async (time_ms: number, signal: AbortSignal): Promise<void> => {
    await document.replace({ time_ms }, signal);
    isStored = true;
  };
  return {
    age_ms: now_ms - from_ms,
    begin: async (signal) => (isStored ? undefined : await write(from_ms, signal)),
    renew: (signal) => write(sched.wall_ms(), signal),
  };
}
