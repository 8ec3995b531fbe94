/**
 * Runs lookups for the routes: one at a time for each target and mode, through the queue `work`.
 *
 * Contract: callers of one target share one lookup. Only the leader submits a job. A lookup has the full budget from its
 * start and goes on without callers, to fill the cache; each caller leaves at its own deadline [index I-4]. A caller that
 * joined a lookup which timed out, and has time left, joins or starts the next one. A lookup whose data changed is
 * detached: later callers start a new one, and its result is not cached.
 * Bound: `runs_max` lookups under way, those in the queue included. Overflow: `busy` at once, from the queue or from here.
 * Cancellation: the deadline of the caller; `close` ends all.
 */
import { Deadline, isRonError, RonError, SingleFlight, type SingleFlightInit, type WorkQueue } from '@ron/kernel';
import { formatTarget, type Target } from '@ron/proto';
import type { AnswerCache } from './cache/answer-cache.ts';
import { CachedAnswer } from './cache/cached-answer.ts';
import type { Versions } from './cache/versions.ts';
import { Lookup, type LookupMode } from './lookup.ts';
import type { Resolution } from './resolution.ts';

/** The DHT phase of a lookup ends this much earlier than its budget, to leave time for a partial answer. */
export const PARTIAL_MS = 50;
/** Answers that state a lack, or that lack answers of peers, are cached this long. */
const NEGATIVE_TTL_MS = 2000;
const JOINS_MAX = 3;

export type LookupLane = '/resolve' | '/providers';

export interface LookupRequest {
  readonly lane: LookupLane;
  readonly target: Target;
  readonly mode: LookupMode;
  readonly deadline: Deadline;
  /** The key by which the queue is fair. */
  readonly ip: string;
}

export interface LookupsInit {
  readonly work: Pick<WorkQueue, 'submit'>;
  readonly cache: Pick<AnswerCache, 'offer'>;
  readonly versions: Versions;
  readonly resolve: (lookup: Lookup, deadline: Deadline) => Promise<Resolution>;
  /** `dht.deadline_ms`, read at each lookup. Undefined: a lookup ends with its last caller, for models without time. */
  readonly budget_ms: () => number | undefined;
  readonly runs_max: number;
  /** Called when a lookup ends. Must not throw. */
  readonly onEnd?: (lookup: Lookup, outcome: Resolution | RonError) => void;
}

export class Lookups implements AsyncDisposable {
  readonly #init: LookupsInit;
  readonly #flights: SingleFlight<Resolution>;
  /** The lookup that a new caller of the key joins. */
  readonly #running = new Map<string, Lookup>();

  constructor(init: LookupsInit) {
    this.#init = init;
    this.#flights = new SingleFlight('lookup', {
      runs_max: init.runs_max,
      // Read at each start: the budget can be reloaded.
      get outlives_ms() {
        return init.budget_ms();
      },
    } as SingleFlightInit);
  }

  /** Lookups under way. */
  get size(): number {
    return this.#flights.size;
  }

  /** Rejects with `not_found`, `timeout`, `breaker_open`, `no_route`, `busy`, `draining` or `canceled`. */
  async find(request: LookupRequest): Promise<Resolution> {
    for (let joins = 1; ; joins += 1) {
      const led = { isLeader: false };
      try {
        return await this.#join(request, led);
      } catch (error) {
        const isOver = led.isLeader || joins >= JOINS_MAX || request.deadline.remaining_ms <= PARTIAL_MS;
        if (isOver || !isRonError(error, 'timeout')) throw error;
      }
    }
  }

  /** As `find`, together with the lookup that was joined, so that its providers can be followed. */
  follow(request: LookupRequest): { readonly lookup: Lookup | undefined; readonly outcome: Promise<Resolution> } {
    const outcome = this.find(request);
    return { outcome, lookup: this.#running.get(flightKey(request)) };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#flights.close();
  }

  #join(request: LookupRequest, led: { isLeader: boolean }): Promise<Resolution> {
    const key = flightKey(request);
    // Its data changed since it began: the change was acknowledged, so this caller must not get the older answer.
    if (this.#running.get(key)?.stamp.isCurrent === false) this.#flights.detach(key);
    return this.#flights.run(key, request.deadline.signal, (flight) => {
      led.isLeader = true;
      // [index I-4] Waiting in the queue counts: the budget begins here.
      return this.#lead(key, request, flight.deadline ?? Deadline.unlimited('lookup', flight));
    });
  }

  async #lead(key: string, { lane, target, mode, ip }: LookupRequest, deadline: Deadline): Promise<Resolution> {
    const { work, versions, resolve, onEnd } = this.#init;
    const lookup = new Lookup(target, formatTarget(target), mode, versions.stamp(), deadline.budget_ms);
    this.#running.set(key, lookup);
    try {
      const resolution = await work.submit(lane, deadline, (scope) => resolve(lookup, scope), ip);
      this.#offer(lookup, resolution, resolution.ttl_ms);
      onEnd?.(lookup, resolution);
      return resolution;
    } catch (error) {
      if (isRonError(error, 'not_found') && error.details?.['complete'] !== false) {
        this.#offer(lookup, error, NEGATIVE_TTL_MS);
      }
      onEnd?.(lookup, isRonError(error) ? error : new RonError('internal', 'the lookup failed', { cause: error }));
      throw error;
    } finally {
      lookup.end();
      this.#leave(key, lookup);
    }
  }

  /** At once: a caller that comes before the flight has settled could not tell any more that the data changed. */
  #leave(key: string, lookup: Lookup): void {
    if (this.#running.get(key) !== lookup) return;
    this.#running.delete(key);
    this.#flights.detach(key);
  }

  #offer(lookup: Lookup, outcome: Resolution | RonError, longest_ms: number): void {
    const isDefinite = !(outcome instanceof RonError) && outcome.complete;
    const ttl_ms = isDefinite ? longest_ms : Math.min(longest_ms, NEGATIVE_TTL_MS);
    if (ttl_ms <= 0 || !lookup.stamp.isCurrent) return;
    this.#init.cache.offer({ key: lookup.key, answer: new CachedAnswer(outcome, ttl_ms, lookup.stamp) });
  }
}

const flightKey = ({ mode, target }: LookupRequest): string => `${mode} ${formatTarget(target)}`;
