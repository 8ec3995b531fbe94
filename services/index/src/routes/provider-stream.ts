/**
 * The providers of an address in order of arrival.
 *
 * Contract: each provider is yielded once, as soon as the lookup reports it; then whether the answer is complete. Nothing is
 * yielded before the first provider is known: a lookup that finds none rejects with its refusal. After the first provider, the
 * deadline of the request ends the stream with `complete: false`.
 * Bound: the providers of one lookup. Cancellation: `gone`.
 */
import { Deadline, isRonError, sched } from '@ron/kernel';
import { isFreshEnough, type Resolution } from '../resolve/resolution.ts';
import type { Ranked } from '../resolve/rank.ts';
import type { LookupRequest } from '../resolve/lookups.ts';
import type { Resolving } from '../resolve/resolving.ts';

export interface ArrivalsInit {
  readonly limit: number;
  /** The oldest announcement that is listed. */
  readonly age_s_max: number;
  /** Aborts when the client leaves. */
  readonly gone: AbortSignal;
}

export interface Arrivals {
  /** The first provider; undefined if the lookup ended without one that fits. */
  readonly first: Ranked | undefined;
  /** The others, then whether the answer is complete. */
  readonly rest: AsyncGenerator<Ranked, boolean, void>;
}

/** Providers of a cached answer. */
export function cachedArrivals(resolution: Resolution, init: ArrivalsInit): Arrivals {
  const now_ms = sched.wall_ms();
  const fresh = resolution.providers.filter((each) => isFreshEnough(each, resolution, init.age_s_max, now_ms));
  const [first, ...others] = fresh.slice(0, init.limit);
  return { first, rest: listed(others, resolution.complete) };
}

/** Joins a lookup. Resolves with its first provider. */
export async function arrivals(resolving: Resolving, request: LookupRequest, init: ArrivalsInit): Promise<Arrivals> {
  // The deadline of the request ends with the first byte of a streamed answer; this one goes on.
  const until = Deadline.after('providers', request.deadline.remaining_ms, { signal: init.gone });
  const rest = follow(resolving, request, init, until);
  try {
    const first = await rest.next();
    return first.done === true ? { first: undefined, rest: listed([], first.value) } : { first: first.value, rest };
  } catch (error) {
    until[Symbol.dispose]();
    throw error;
  }
}

async function* listed(providers: readonly Ranked[], complete: boolean): AsyncGenerator<Ranked, boolean, void> {
  yield* providers;
  return complete;
}

async function* follow(
  resolving: Resolving,
  request: LookupRequest,
  { limit, age_s_max }: ArrivalsInit,
  until: Deadline,
): AsyncGenerator<Ranked, boolean, void> {
  const { lookup, outcome } = resolving.lookups.follow({ ...request, deadline: until });
  // It is awaited below; until then a rejection is not unhandled.
  outcome.catch(() => undefined);
  const channel = lookup?.follow();
  const sent = new Set<string>();
  const isNew = ({ id, age_s }: Ranked): boolean =>
    (age_s ?? Infinity) <= age_s_max && !sent.has(id) && sent.size < limit;
  try {
    for (;;) {
      const provider = sent.size < limit ? await channel?.recv(until.signal) : undefined;
      if (provider === undefined) break;
      if (!isNew(provider)) continue;
      sent.add(provider.id);
      yield provider;
    }
    const resolution = await outcome;
    // Providers of a lookup that was joined later.
    for (const provider of resolution.providers) {
      if (!isNew(provider)) continue;
      sent.add(provider.id);
      yield provider;
    }
    return resolution.complete;
  } catch (error) {
    // Part of the answer was sent: it ends as incomplete.
    if (sent.size > 0 && isRonError(error) && !isRonError(error, 'internal')) return false;
    throw error;
  } finally {
    if (channel !== undefined) lookup?.unfollow(channel);
    until[Symbol.dispose]();
  }
}
