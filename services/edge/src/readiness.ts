/** The gates of `/readyz` of edge. The listener adds `draining`, the capability keys add theirs. */
import type { GateInit } from '@ron/ingress';
import type { BadPack } from './packs/packs.ts';

export interface GatesInit {
  readonly packs: { bad(): readonly BadPack[]; readonly problem: string | undefined };
  readonly cache: { readonly problem: string | undefined };
  readonly fills: { readonly problem: string | undefined };
  readonly fillLog: { readonly warning: string | undefined };
  readonly work: { readonly overloaded: boolean };
  readonly supervisor: {
    health(): readonly { readonly kind: string; readonly live: number; readonly wanted: number }[];
  };
}

export function gatesOf(init: GatesInit): Readonly<Record<string, GateInit>> {
  const { packs, cache, fills, fillLog } = init;
  return {
    // Other packs and the admin routes still answer, so that the operator can remove the file.
    packs: { kind: 'hard', sample: () => problemOf(packs, false) ?? packs.problem },
    packs_replaced: { kind: 'soft', sample: () => problemOf(packs, true) },
    shedding: { kind: 'soft', sample: () => sheddingProblem(init) },
    disk: { kind: 'soft', sample: () => cache.problem },
    upstream: { kind: 'soft', sample: () => fills.problem },
    fill_log: { kind: 'soft', sample: () => fillLog.warning },
  };
}

/** `isServed`: an earlier version of the pack is served, so only the replacement is refused. */
function problemOf(packs: GatesInit['packs'], isServed: boolean): string | undefined {
  const bad = packs.bad().filter((each) => each.isServed === isServed);
  const [first] = bad;
  if (first === undefined) return undefined;
  const more = bad.length === 1 ? '' : `, and ${bad.length - 1} more`;
  return `${first.file}: ${first.reason}${more}`;
}

function sheddingProblem({ work, supervisor }: GatesInit): string | undefined {
  if (work.overloaded) return 'fills wait too long for a worker';
  const workers = supervisor.health().find(({ kind }) => kind === 'worker');
  if (workers === undefined || workers.live >= workers.wanted) return undefined;
  return `${workers.live} of ${workers.wanted} workers run`;
}
