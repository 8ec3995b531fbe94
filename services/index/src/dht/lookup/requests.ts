/**
 * Requests to peers: breaker, time limit and retries.
 *
 * Contract: a request is sent only with a permit of the peer's breaker, which gets one verdict for each try. It ends after
 * its time limit, retries included. Only transient errors are retried, by `POLICIES.index` and within the retry budget;
 * timeouts are not, as another peer is the better choice.
 * Cancellation: by the signal; a canceled try gives no verdict.
 */
import {
  Deadline,
  idempotent,
  isRonError,
  isTransient,
  orAborted,
  POLICIES,
  retry,
  RetryBudget,
  RonError,
  verdictOf,
  type RetryPolicy,
  type Verdict,
} from '@ron/kernel';
import type { PeerBreakers } from '../breakers.ts';
import type { SendInit } from './lookup.ts';
import type { PeerRef } from '../peers.ts';

/** A slow peer holds neither a lookup nor a connection for longer. */
export const REQUEST_MS = 500;
/** Many records on one stream. */
export const BULK_MS = 10_000;
const OP = 'dht_request';

export interface PeerRequestsInit {
  readonly breakers: PeerBreakers;
  readonly onRetry?: ((op: string, result: 'ok' | 'failed') => void) | undefined;
}

export interface RequestInit extends SendInit {
  /** Default `REQUEST_MS`. */
  readonly limit_ms?: number;
}

export class PeerRequests {
  readonly #init: PeerRequestsInit;
  readonly #budget = new RetryBudget();

  constructor(init: PeerRequestsInit) {
    this.#init = init;
  }

  /** `call` must be idempotent: all requests of the DHT are. Rejects with `breaker_open`, `timeout` or the last error. */
  async send<T>(peer: PeerRef, call: (signal: AbortSignal) => Promise<T>, init: RequestInit): Promise<T> {
    using deadline = Deadline.after(OP, init.limit_ms ?? REQUEST_MS, { signal: init.signal });
    const work = idempotent(OP, async (signal) => {
      try {
        return await this.#try(peer, call, signal);
      } catch (error) {
        if (!init.signal.aborted && !isRonError(error, 'breaker_open')) init.onTryFailed();
        throw error;
      }
    });
    const onRetry = this.#init.onRetry;
    const policy: RetryPolicy = { ...POLICIES.index, isTransient: (error) => this.#isRetried(peer, error) };
    return await retry(work, { policy, deadline, budget: this.#budget, ...(onRetry && { onRetry }) });
  }

  #isRetried(peer: PeerRef, error: unknown): boolean {
    return isTransient(error) && !isRonError(error, 'timeout') && this.#init.breakers.state(peer.id) !== 'open';
  }

  async #try<T>(peer: PeerRef, call: (signal: AbortSignal) => Promise<T>, signal: AbortSignal): Promise<T> {
    const permit = this.#init.breakers.admit(peer.id);
    if (permit === undefined) throw new RonError('breaker_open', 'the breaker of the peer is open');
    try {
      const answer = await orAborted(call(signal), signal);
      permit.settle('success');
      return answer;
    } catch (error) {
      permit.settle(verdictFor(error, signal));
      throw error;
    }
  }
}

/** The end of the lookup says nothing about the peer; the time limit of the request does. */
function verdictFor(error: unknown, signal: AbortSignal): Verdict {
  if (signal.aborted) return isRonError(signal.reason, 'timeout') && signal.reason.op === OP ? 'failure' : 'none';
  return verdictOf(error);
}
