/**
 * Exchanges the capability of a client for one of storage, by passport. A client's own capability is never forwarded.
 *
 * Contract: the result is limited to one address, or to a number of bytes; passport has checked the client's capability with its
 * revocations. A refused client gets 401 or 403; a refusal of the capability of interop itself is a failure of the node (503).
 * Results for reads are kept for the same token and address until shortly before they expire. They are no way around a
 * revocation: the listener checks the client's capability for each request, and storage checks the result, whose chain has the
 * id of the client's.
 * Bound: `KEPT_MAX` results, `RUNS_MAX` concurrent exchanges for reads; each ends within the deadline `passport`.
 * Overflow: an evicted result is exchanged again; more reads are refused with `busy`.
 * Cancellation: by the deadline of the request. Readers of one object share a call, which ends with the last of them.
 */
import { hash } from 'node:crypto';
import { Cache } from '@ron/cache';
import { RonError, sched, SingleFlight, type Deadline, type DeadlineInit } from '@ron/kernel';
import type { Address, ExchangeInit, ExchangeVerdict } from '@ron/proto';
import type { Retry, Upstream } from '../upstreams/upstream.ts';

export interface TokenExchangeInit {
  readonly passport: Pick<Upstream, 'callIdempotent'>;
  /** One try. */
  readonly exchange: (request: ExchangeInit, signal: AbortSignal) => Promise<ExchangeVerdict>;
  /** Retries `exchange`. */
  readonly retry: Retry;
  /** A new deadline `passport`. */
  readonly deadline: (within: Pick<DeadlineInit, 'parent' | 'signal'>) => Deadline;
}

interface Kept {
  readonly token: string;
  readonly expires_ms: number;
}

const KEPT_MAX = 4096;
const RUNS_MAX = 1024;
/** A kept result is not used in the last part of its life: the request has to reach storage. */
const MARGIN_MS = 1000;

export class TokenExchange implements AsyncDisposable {
  readonly #init: TokenExchangeInit;
  readonly #kept = new Cache<Kept>({ entries_max: KEPT_MAX });
  readonly #reads = new SingleFlight<string>('exchange', { runs_max: RUNS_MAX });

  constructor(init: TokenExchangeInit) {
    this.#init = init;
  }

  /** For one write: of the object with this address, or of at most `bytes_max`. */
  async forPut(
    token: string,
    target: { readonly address: Address } | { readonly bytes_max: number },
    deadline: Deadline,
  ): Promise<string> {
    return (await this.#exchange({ token, scope: 'interop:put', ...target }, { parent: deadline })).token;
  }

  /** For reads of one object. */
  async forGet(token: string, address: Address, deadline: Deadline): Promise<string> {
    const key = keyOf(token, address);
    const kept = this.#kept.get(key);
    // By the wall clock too, which is the one that storage compares.
    if (kept !== undefined && kept.expires_ms - MARGIN_MS > sched.wall_ms()) return kept.token;
    return await this.#reads.run(key, deadline.signal, async ({ signal }) => {
      // Not the deadline of the first reader: the others go on if it leaves.
      const result = await this.#exchange({ token, scope: 'interop:get', address }, { signal });
      const ttl_ms = result.expires_ms - sched.wall_ms() - MARGIN_MS;
      if (ttl_ms > 0) this.#kept.set(key, result, 0, { ttl_ms });
      return result.token;
    });
  }

  /** Storage refused the result. */
  forget(token: string, address: Address): void {
    this.#kept.delete(keyOf(token, address));
  }

  async #exchange(request: ExchangeInit, within: Pick<DeadlineInit, 'parent' | 'signal'>): Promise<Kept> {
    const { passport, exchange, retry } = this.#init;
    // [interop I-4]
    using deadline = this.#init.deadline(within);
    const verdict = await passport.callIdempotent('exchange', deadline, (signal) => exchange(request, signal), retry);
    if (verdict.ok) return { token: verdict.token, expires_ms: verdict.expires_ms };
    const { code, cause, reason } = verdict;
    throw new RonError(code, reason, cause === undefined ? {} : { reason: cause });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#kept.clear();
    await this.#reads.close();
  }
}

/** The token itself is not kept as a key. Attenuated capabilities share an id, but not their restrictions. */
function keyOf(token: string, address: Address): string {
  return `${hash('sha256', token, 'base64url')} ${address}`;
}
