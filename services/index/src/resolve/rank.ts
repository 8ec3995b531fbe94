/**
 * The order of providers: a pure function of proof, freshness, latency and breaker.
 *
 * Contract: failed providers are dropped. Every proven provider precedes every unproven one. Within each group the lower cost
 * comes first: the average latency, times a factor for the age of the announcement, times a factor for the breaker. So the
 * position of a provider never improves when it gets older or slower or its breaker opens. Equal costs are ordered by id and URL.
 * The result does not depend on the order of the input.
 */
import type { BreakerState } from '@ron/kernel';
import type { ProviderProof } from '@ron/proto';

export interface Candidate {
  readonly id: string;
  readonly url: string;
  readonly proof: ProviderProof | 'failed';
  /** Seconds since the announcement; null if unknown. */
  readonly age_s: number | null;
  readonly latency_ms: number | null;
  readonly breaker: BreakerState;
}

/** A provider that may be listed. */
export interface Ranked extends Candidate {
  readonly proof: ProviderProof;
}

/** A provider that was never measured ranks as one with this latency. */
const LATENCY_UNKNOWN_MS = 250;
const LATENCY_MIN_MS = 1;
/** Providers announce again every 22 h, so an older announcement is likely to be outdated. */
const AGE_HALF_S = 24 * 3600;
/** A provider whose age is unknown ranks as one of this age. */
const AGE_UNKNOWN_S = 12 * 3600;
const BREAKER_FACTOR: Readonly<Record<BreakerState, number>> = { closed: 1, half_open: 4, open: 64 };

export function rank(candidates: readonly Candidate[]): Ranked[] {
  return candidates.filter(isListed).toSorted(compare);
}

function isListed(candidate: Candidate): candidate is Ranked {
  return candidate.proof !== 'failed';
}

function compare(left: Ranked, right: Ranked): number {
  if (left.proof !== right.proof) return left.proof === 'proven' ? -1 : 1;
  return cost(left) - cost(right) || order(left.id, right.id) || order(left.url, right.url);
}

function cost({ latency_ms, age_s, breaker }: Ranked): number {
  const usual_ms = Math.max(latency_ms ?? LATENCY_UNKNOWN_MS, LATENCY_MIN_MS);
  return usual_ms * (1 + Math.max(age_s ?? AGE_UNKNOWN_S, 0) / AGE_HALF_S) * BREAKER_FACTOR[breaker];
}

const order = (left: string, right: string): number => (left < right ? -1 : left > right ? 1 : 0);
