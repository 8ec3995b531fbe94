/** The gates of `/readyz` of index. The listener adds `draining`, the capability keys add theirs. */
import type { GateInit } from '@ron/ingress';
import { sched } from '@ron/kernel';

export interface GatesInit {
  readonly store: { readonly problem: string | undefined };
  readonly dht: { readonly problem: string | undefined };
  readonly names: { readonly problem: string | undefined };
  readonly work: { readonly overloaded: boolean };
  readonly events: { readonly lagged_total: number };
  readonly configProblem: () => string | undefined;
}

/** How long the gate `bus` stays closed after events were lost. */
const BUS_CLOSED_MS = 30_000;

export function gatesOf(init: GatesInit): Readonly<Record<string, GateInit>> {
  const { store, dht, names, work, events, configProblem } = init;
  return {
    db: { kind: 'hard', sample: () => store.problem },
    dht: { kind: 'soft', sample: () => dht.problem },
    name_log: { kind: 'soft', sample: () => names.problem },
    shedding: {
      kind: 'soft',
      sample: () => (work.overloaded ? 'lookups wait too long for a resolver' : undefined),
    },
    bus: { kind: 'soft', sample: recentLoss(events) },
    config: { kind: 'soft', sample: configProblem },
  };
}

/** Events are lost at a moment, so the gate reports it for a while. */
function recentLoss(events: GatesInit['events']): () => string | undefined {
  let known = 0;
  let closed_until_ms = -Infinity;
  return () => {
    const now_ms = sched.now_ms();
    if (events.lagged_total > known) {
      known = events.lagged_total;
      closed_until_ms = now_ms + BUS_CLOSED_MS;
    }
    return now_ms < closed_until_ms ? 'events were lost: the log is too slow' : undefined;
  };
}
