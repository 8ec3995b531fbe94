/** Facts about providers that the prober collects, as lookups use them. Every call is synchronous and reads memory. */
import type { Address } from '@ron/proto';

export interface ProviderRef {
  readonly id: string;
  readonly url: string;
}

/** The target of the breaker of a provider: its storage may fail while it answers as a peer of the DHT. */
export const storageTarget = (id: string): string => `storage:${id}`;

export interface Evidence {
  /** Whether the provider returned verified bytes of the object. Undefined: not probed, or too long ago. */
  verdict(address: Address, provider: ProviderRef): 'proven' | 'failed' | undefined;
  /** The size of an object, known from a verified proof. */
  size(address: Address): number | undefined;
  /** Moving average of the time that answers of the provider take. */
  latency_ms(id: string): number | undefined;
  /**
   * Queues a probe, if one is due; `isFresh`: even if the last proof is recent. Never waits; an overfull queue drops the
   * oldest request.
   */
  request(address: Address, provider: ProviderRef, isFresh?: boolean): void;
}

/** For a node without a prober: no provider is ever proven. */
export const NO_EVIDENCE: Evidence = {
  verdict: () => undefined,
  size: () => undefined,
  latency_ms: () => undefined,
  request: () => undefined,
};
