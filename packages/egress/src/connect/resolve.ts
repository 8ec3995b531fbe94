/**
 * Resolves host names with a bound on the lookups in flight.
 *
 * Contract: every call sees the answer of a lookup that ended after the call began; no answer is cached. Concurrent calls
 * for one name share a lookup. A caller leaves at its deadline; the lookup itself cannot be stopped (`getaddrinfo` holds
 * a thread) and keeps its place until it ends.
 * Bound: `lookups_max` lookups, abandoned ones included. Overflow: `busy`. Cancellation: by the deadline.
 *
 *   const resolver = new Resolver(systemLookup, 16);
 *   const addresses = await resolver.resolve('tiles.example', deadline);
 */
import { lookup } from 'node:dns/promises';
import { RonError, type Deadline } from '@ron/kernel/core';

/** Gives all addresses of a host name. */
export type Lookup = (hostname: string) => Promise<readonly string[]>;

export const systemLookup: Lookup = async (hostname) => {
  const found = await lookup(hostname, { all: true, order: 'verbatim' });
  return found.map(({ address }) => address);
};

export class Resolver {
  readonly #lookup: Lookup;
  readonly #lookups_max: number;
  readonly #running = new Map<string, Promise<readonly string[]>>();

  constructor(lookup_: Lookup, lookups_max: number) {
    this.#lookup = lookup_;
    this.#lookups_max = lookups_max;
  }

  async resolve(hostname: string, deadline: Deadline): Promise<readonly string[]> {
    return await deadline.within(this.#running.get(hostname) ?? this.#start(hostname));
  }

  #start(hostname: string): Promise<readonly string[]> {
    if (this.#running.size >= this.#lookups_max)
      return Promise.reject(new RonError('busy', 'too many host lookups at once', { op: 'egress_dns' }));
    const run = Promise.resolve(hostname)
      .then(this.#lookup)
      .catch((cause: unknown) => {
        throw new RonError('unreachable', `cannot resolve ${hostname}`, { op: 'egress_dns', cause });
      })
      .finally(() => this.#running.delete(hostname));
    this.#running.set(hostname, run);
    return run;
  }
}
