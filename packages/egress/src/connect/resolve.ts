/**
 * Resolves host names with a bound on the lookups in flight.
 *
 * Contract: every call sees the answer of a lookup that ended after the call began; no answer is cached. Concurrent calls
 * for one name share a lookup. A caller leaves at its deadline; the lookup itself cannot be stopped (`getaddrinfo` holds
 * a thread) and keeps its place until it ends.
 * Bound: `lookups_max` lookups, abandoned ones included; a caller that left is not kept. Overflow: `busy`. Cancellation: by the deadline.
 *
 *   const resolver = new Resolver(systemLookup, 16);
 *   const addresses = await resolver.resolve('tiles.example', deadline);
 */
import { lookup } from 'node:dns/promises';
import { RonError, sched, type Deadline, type Parked } from '@ron/kernel/core';

/** Gives all addresses of a host name. */
export type Lookup = (hostname: string) => Promise<readonly string[]>;

export const systemLookup: Lookup = async (hostname) => {
  const found = await lookup(hostname, { all: true, order: 'verbatim' });
  return found.map(({ address }) => address);
};

type Waiter = Parked<readonly string[]>;

export class Resolver {
  readonly #lookup: Lookup;
  readonly #lookups_max: number;
  /**
   * Callers by the name whose lookup they wait for. They do not wait on the promise of the lookup itself: one that
   * never ends would keep each caller in memory.
   */
  readonly #running = new Map<string, Set<Waiter>>();

  constructor(lookup_: Lookup, lookups_max: number) {
    this.#lookup = lookup_;
    this.#lookups_max = lookups_max;
  }

  async resolve(hostname: string, deadline: Deadline): Promise<readonly string[]> {
    const waiters = this.#running.get(hostname) ?? this.#start(hostname);
    const waiter: Waiter = sched.park('egress_dns');
    waiters.add(waiter);
    try {
      return await deadline.within(waiter.promise);
    } finally {
      waiters.delete(waiter);
    }
  }

  #start(hostname: string): Set<Waiter> {
    if (this.#running.size >= this.#lookups_max)
      throw new RonError('busy', 'too many host lookups at once', { op: 'egress_dns' });
    const waiters = new Set<Waiter>();
    this.#running.set(hostname, waiters);
    Promise.resolve(hostname)
      .then(this.#lookup)
      .finally(() => this.#running.delete(hostname))
      .then(
        (addresses) => waiters.forEach((waiter) => waiter.wake(addresses)),
        (cause: unknown) => {
          const error = new RonError('unreachable', `cannot resolve ${hostname}`, { op: 'egress_dns', cause });
          waiters.forEach((waiter) => waiter.fail(error));
        },
      );
    return waiters;
  }
}
