/** The explanation of a lookup. Bounded by the requests and providers of the lookup. */
import type { ReceiptDto } from '@ron/proto';
import { storageTarget } from './evidence.ts';
import type { Lookup } from './lookup.ts';
import type { Candidate, Ranked } from './rank.ts';

export interface ReceiptInit {
  readonly source: 'db' | 'dht';
  readonly candidates: readonly Candidate[];
  /** Those that are listed, the best first. */
  readonly ranked: readonly Ranked[];
  readonly breakers: ReceiptDto['breakers'];
}

export function receiptOf(lookup: Lookup, { source, candidates, ranked, breakers }: ReceiptInit): ReceiptDto {
  const { peers, hedges_started, hedges_won, hedges_refused } = lookup.trace;
  const involved = new Set([
    ...peers.map(({ peer }) => peer),
    ...candidates.flatMap(({ id }) => [id, storageTarget(id)]),
  ]);
  const failed = candidates.filter(({ proof }) => proof === 'failed');
  return {
    started_at: new Date(lookup.started_wall_ms).toISOString(),
    took_ms: Math.round(lookup.took_ms),
    budget_ms: lookup.budget_ms,
    source,
    peers: [...peers],
    hedges: { started: hedges_started, won: hedges_won, refused: hedges_refused },
    breakers: breakers.filter(({ target }) => involved.has(target)),
    // Failed providers are listed last, to explain why they are not in the answer.
    ranking: [...ranked, ...failed].map(({ id, proof, age_s, latency_ms, breaker }, at) => ({
      id,
      rank: at + 1,
      proof,
      age_s,
      latency_ms: latency_ms === null ? null : Math.round(latency_ms),
      breaker,
    })),
  };
}
