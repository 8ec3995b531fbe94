/**
 * Runs fills for the routes: one at a time for each key, through the queue `work`.
 *
 * Contract: callers of one key share one fill. Only the leader submits a job. A fill goes on without callers, up to its deadline,
 * so that the asset is cached; each caller leaves at its own deadline [edge I-4] [edge I-5]. A fill that began before a purge
 * is not joined by callers that come after it, and its asset is not kept; a stale asset from before a purge is not
 * revalidated. An asset that must not be stored is for the leader only: each other caller fetches its own, which is not kept.
 * An asset that the origin does not have any more, or that must not be stored any more, is removed from the cache. Until the
 * task `fill_log` has kept a fresh asset, later callers get it from here. The allow-list is checked before the queue, by the worker, and before the asset is stored.
 * Bound: `runs_max` fills under way, `waiters` callers, `SETTLING_MAX` assets on their way to the cache. Overflow: `busy`, counted
 * once for each caller; an asset that finds the channel `fills` full is answered and not cached [edge I-3] [edge I-9].
 * Cancellation: the deadline of the caller; `close` ends all.
 *
 *   const { asset } = await fills.fill(missing, undefined, ctx.deadline, ctx.ip);
 */
import {
  Deadline,
  isRonError,
  NEVER,
  sched,
  SingleFlight,
  type Flight,
  type Mpsc,
  type SingleFlightInit,
  type WorkQueue,
} from '@ron/kernel';
import type { Waiters } from '@ron/service';
import type { AssetCache } from '../cache/asset-cache.ts';
import type { CachedAsset } from '../cache/cached-asset.ts';
import type { Fetched } from './fetched.ts';
import type { FilledAsset, FillResult, Fills, Missing, StaleAsset } from './fills.ts';

export const LANE = '/edge/assets';
/** The caller whose turn in the queue revalidations in the background take. */
const INTERNAL = 'internal';
const SETTLING_MAX = 4096;
const NEGATIVE_JITTER = 0.1;

export interface CoalescedFillsInit {
  readonly work: Pick<WorkQueue, 'submit' | 'depth' | 'capacity'>;
  readonly waiters: Pick<Waiters, 'wait' | 'onBusy'>;
  readonly fills: Pick<Mpsc<FilledAsset>, 'trySend'>;
  readonly cache: Pick<AssetCache, 'generation' | 'withdraw'> & {
    readonly ram: Pick<AssetCache['ram'], 'setNegative'>;
  };
  /** Throws if the asset must not be fetched by the configuration in force. */
  readonly requireFillable: (missing: Missing) => void;
  readonly fetch: (missing: Missing, stale: CachedAsset | undefined, deadline: Deadline) => Promise<Fetched>;
  readonly isFresh: (asset: CachedAsset) => boolean;
  /** Whether a fetched asset may be kept: without a working fill log, those of origins may not. */
  readonly canKeep: (asset: CachedAsset) => boolean;
  /** `fill.negative_ttl`, read at each use. */
  readonly negative_ttl_ms: () => number;
  readonly runs_max: number;
  /** The deadline of a fill. Undefined: a fill ends with its last caller, for models without time. */
  readonly outlives_ms: number | undefined;
  /** Called when a fill ends. Must not throw. */
  readonly onEnd?: (missing: Missing, outcome: FillOutcome | { readonly error: unknown }) => void;
}

/** The result of a fill that its callers share. */
export interface FillOutcome extends Omit<FillResult, 'isCollapsed'> {
  readonly isShared: boolean;
}

interface Running {
  readonly generation: number;
  /** Whether its asset may be kept: not if its origin has withdrawn the asset since, and not for one caller only. */
  isKept: boolean;
}

interface Settling {
  readonly generation: number;
  readonly outcome: FillOutcome;
  /** Its origin has withdrawn the asset since. */
  isWithdrawn: boolean;
}

/** A caller's part in a fill. */
interface Joined {
  readonly outcome: FillOutcome;
  readonly isLeader: boolean;
}

export class CoalescedFills implements Fills, AsyncDisposable {
  readonly #init: CoalescedFillsInit;
  readonly #flights: SingleFlight<FillOutcome>;
  /** The fill that a new caller of the key joins. */
  readonly #running = new Map<string, Running>();
  /** Assets on their way to the cache, by key. */
  readonly #settling = new Map<string, Settling>();
  #unshared = 0;

  constructor(init: CoalescedFillsInit) {
    this.#init = init;
    const { runs_max, outlives_ms } = init;
    const flights: SingleFlightInit = { runs_max, ...(outlives_ms !== undefined && { outlives_ms }) };
    this.#flights = new SingleFlight('fill', flights);
  }

  /** Fills under way. */
  get size(): number {
    return this.#flights.size;
  }

  async fill(missing: Missing, stale: StaleAsset | undefined, deadline: Deadline, ip: string): Promise<FillResult> {
    const { requireFillable, waiters } = this.#init;
    requireFillable(missing);
    const settling = this.#settled(missing);
    if (settling !== undefined) return resultOf({ outcome: settling, isLeader: false });
    return await waiters.wait(() => this.#join(missing, stale, deadline.signal, ip));
  }

  refresh(missing: Missing, stale: StaleAsset): void {
    const { key } = missing;
    const { work, cache } = this.#init;
    if (this.#running.get(key)?.generation === cache.generation || this.#settling.has(key)) return;
    // No client is refused then, and none loses its place in the queue.
    if (work.depth >= work.capacity) return;
    // It ends by the deadline of the fill. `onEnd` reports its failure.
    void this.#join(missing, stale, NEVER, INTERNAL).catch(() => undefined);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#flights.close();
  }

  async #join(missing: Missing, stale: StaleAsset | undefined, signal: AbortSignal, ip: string): Promise<FillResult> {
    const { key } = missing;
    const isOutdated = this.#running.has(key) && this.#running.get(key)!.generation !== this.#init.cache.generation;
    if (isOutdated) this.#detach(key);
    const shared = await this.#run(key, missing, stale, signal, ip);
    if (shared.outcome.isShared || shared.isLeader) return resultOf(shared);
    // The answer is for its leader only. No other caller joins this fill.
    this.#unshared += 1;
    return resultOf(await this.#run(`${key} ${this.#unshared}`, missing, stale, signal, ip));
  }

  async #run(
    flight_key: string,
    missing: Missing,
    stale: StaleAsset | undefined,
    signal: AbortSignal,
    ip: string,
  ): Promise<Joined> {
    let isLeader = false;
    try {
      const outcome = await this.#flights.run(flight_key, signal, (flight) => {
        isLeader = true;
        return this.#lead(flight_key, missing, stale, flight, ip);
      });
      return { outcome, isLeader };
    } catch (error) {
      // The queue has counted the job of the leader. Behind a revalidation in the background there is no request.
      const isRequest = ip !== INTERNAL;
      if (isRequest && isRonError(error, 'busy') && !(isLeader && error.op === LANE)) this.#init.waiters.onBusy();
      throw error;
    }
  }

  async #lead(
    flight_key: string,
    missing: Missing,
    stale: StaleAsset | undefined,
    flight: Flight,
    ip: string,
  ): Promise<FillOutcome> {
    const { work, cache, onEnd } = this.#init;
    const running: Running = { generation: cache.generation, isKept: flight_key === missing.key };
    // A purge since its look-up has removed it.
    const known = stale?.generation === running.generation ? stale : undefined;
    this.#running.set(flight_key, running);
    const deadline = flight.deadline ?? Deadline.unlimited('fill', flight);
    try {
      const outcome = await work.submit(LANE, deadline, (scope) => this.#work(missing, known, running, scope), ip);
      onEnd?.(missing, outcome);
      return outcome;
    } catch (error) {
      onEnd?.(missing, { error });
      throw error;
    } finally {
      if (this.#running.get(flight_key) === running) this.#detach(flight_key);
    }
  }

  /** In the worker. */
  async #work(
    missing: Missing,
    stale: StaleAsset | undefined,
    running: Running,
    scope: Deadline,
  ): Promise<FillOutcome> {
    const { requireFillable, fetch } = this.#init;
    requireFillable(missing);
    let fetched: Fetched;
    try {
      fetched = await fetch(missing, stale, scope);
    } catch (error) {
      // A reload that removed the origin has closed the connection.
      requireFillable(missing);
      throw error;
    }
    if (fetched.kind === 'absent') return this.#absent(missing, fetched.isKept, running);
    const { meta, body, how, isStorable } = fetched;
    const asset: CachedAsset = { meta, source: body.source, tier: 'fill' };
    try {
      requireFillable(missing);
    } catch (error) {
      body.discard();
      throw error;
    }
    if (!isStorable) {
      this.#withdraw(missing, running);
      return { asset, isStored: false, how, isShared: false };
    }
    if (running.isKept)
      return this.#offer(
        { asset, isStored: true, how, isShared: true },
        { meta, body, generation: running.generation },
      );
    body.discard();
    return { asset, isStored: false, how, isShared: true };
  }

  #absent(missing: Missing, isKept: boolean, running: Running): FillOutcome {
    const { cache, negative_ttl_ms } = this.#init;
    const { generation } = running;
    this.#withdraw(missing, running);
    const ttl_ms = negative_ttl_ms() * (1 + (sched.random() * 2 - 1) * NEGATIVE_JITTER);
    if (isKept && ttl_ms > 0 && cache.generation === generation) cache.ram.setNegative(missing.key, ttl_ms);
    return { asset: undefined, isStored: false, how: 'none', isShared: true };
  }

  /** The origin has no such asset any more, or none that may be stored: an older one is removed and not kept again. */
  #withdraw({ key }: Missing, running: Running): void {
    const other = this.#running.get(key);
    if (other !== undefined && other !== running) other.isKept = false;
    const settling = this.#settling.get(key);
    if (settling !== undefined) settling.isWithdrawn = true;
    this.#init.cache.withdraw(key);
  }

  /** Sends the asset to the task `fill_log`, if it has room. */
  #offer(outcome: FillOutcome, filled: Omit<FilledAsset, 'settled'>): FillOutcome {
    const { fills, cache, canKeep } = this.#init;
    const { meta, body, generation } = filled;
    const entry: Settling = { outcome, generation, isWithdrawn: false };
    const settled = (): void => {
      if (this.#settling.get(meta.key) !== entry) return;
      this.#settling.delete(meta.key);
      // It may have been kept after the withdrawal.
      if (entry.isWithdrawn) cache.withdraw(meta.key);
    };
    const canSend = cache.generation === generation && canKeep(outcome.asset!);
    if (!canSend || fills.trySend({ meta, body, generation, settled }) !== 'ok') {
      body.discard();
      return { ...outcome, isStored: false };
    }
    if (this.#settling.size < SETTLING_MAX) this.#settling.set(meta.key, entry);
    return outcome;
  }

  /** A fresh asset that is on its way to the cache. */
  #settled({ key }: Missing): FillOutcome | undefined {
    const settling = this.#settling.get(key);
    if (settling === undefined || settling.isWithdrawn) return undefined;
    if (settling.generation !== this.#init.cache.generation) return undefined;
    return this.#init.isFresh(settling.outcome.asset!) ? settling.outcome : undefined;
  }

  /** Later callers start a new fill. */
  #detach(flight_key: string): void {
    this.#running.delete(flight_key);
    this.#flights.detach(flight_key);
  }
}

function resultOf({ outcome, isLeader }: Joined): FillResult {
  const { asset, isStored, how } = outcome;
  return { asset, isStored, how, isCollapsed: !isLeader };
}
