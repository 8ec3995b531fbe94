/**
 * Requests to peers: breaker, time limit and retries.
 *
 * Contract: a request is sent only with a permit of the peer's breaker, which gets one verdict for each try. It ends after
 * its time limit, retries included. With `onStalled` it counts as failed after `REQUEST_MS`, but goes on: a late answer is
 * returned. Only transient errors are retried, by `POLICIES.index` and within the retry budget; timeouts and requests that
 * stalled are not, as another peer is the better choice.
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
  sched,
  verdictOf,
  type RetryPolicy,
  type Timer,
  type Verdict,
} from '@ron/kernel';
import type { PeerBreakers, PeerPermit } from '../breakers.ts';
import type { SendInit } from './lookup.ts';
import type { PeerRef } from '../peers.ts';

/** A request without an answer for this time has stalled. */
export const REQUEST_MS = 500;
/** Many records on one stream. */
export const BULK_MS = 10_000;
/** Of a request that stalled. Its lookup usually ends earlier. */
const STALLED_MS = 10_000;
const OP = 'dht_request';

export interface PeerRequestsInit {
  readonly breakers: PeerBreakers;
  readonly onRetry?: ((op: string, result: 'ok' | 'failed') => void) | undefined;
}

export interface RequestInit extends SendInit {
  /** Default `REQUEST_MS`; ignored with `onStalled`. */
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
    const limit_ms = init.onStalled === undefined ? (init.limit_ms ?? REQUEST_MS) : STALLED_MS;
    using deadline = Deadline.after(OP, limit_ms, { signal: init.signal });
    using stall = new Stall(init.onStalled);
    const work = idempotent(OP, async (signal) => {
      try {
        return await this.#try(peer, call, signal, stall);
      } catch (error) {
        if (!init.signal.aborted && !stall.hasStalled && !isRonError(error, 'breaker_open')) init.onTryFailed();
        throw error;
      }
    });
    const onRetry = this.#init.onRetry;
    const policy: RetryPolicy = {
      ...POLICIES.index,
      isTransient: (error) => !stall.hasStalled && this.#isRetried(peer, error),
    };
    return await retry(work, { policy, deadline, budget: this.#budget, ...(onRetry && { onRetry }) });
  }

  #isRetried(peer: PeerRef, error: unknown): boolean {
    return isTransient(error) && !isRonError(error, 'timeout') && this.#init.breakers.state(peer.id) !== 'open';
  }

  async #try<T>(
    peer: PeerRef,
    call: (signal: AbortSignal) => Promise<T>,
    signal: AbortSignal,
    stall: Stall,
  ): Promise<T> {
    const permit = this.#init.breakers.admit(peer.id);
    if (permit === undefined) throw new RonError('breaker_open', 'the breaker of the peer is open');
    stall.permit = permit;
    try {
      const answer = await orAborted(call(signal), signal);
      if (!stall.hasStalled) permit.settle('success');
      return answer;
    } catch (error) {
      if (!stall.hasStalled) permit.settle(verdictFor(error, signal));
      throw error;
    } finally {
      stall.permit = undefined;
    }
  }
}

/** Counts the request as a failure of the peer when its answer is overdue. Without a callback it never does. */
class Stall implements Disposable {
  readonly #timer: Timer | undefined;
  /** Of the try under way. */
  permit: PeerPermit | undefined;
  hasStalled = false;

  constructor(onStalled: (() => void) | undefined) {
    if (onStalled === undefined) return;
    const stall = (): void => {
      this.hasStalled = true;
      this.permit?.settle('failure');
      onStalled();
    };
    this.#timer = sched.timer(REQUEST_MS, stall, 'dht request');
  }

  [Symbol.dispose](): void {
    this.#timer?.cancel();
  }
}

/** The end of the lookup says nothing about the peer; the time limit of the request does. */
function verdictFor(error: unknown, signal: AbortSignal): Verdict {
  if (signal.aborted) return isRonError(signal.reason, 'timeout') && signal.reason.op === OP ? 'failure' : 'none';
  // The own limit of streams is reached: the peer has not received the request.
  return isRonError(error, 'busy') ? 'none' : verdictOf(error);
}
