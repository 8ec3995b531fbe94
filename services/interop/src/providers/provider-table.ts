/**
 * The providers as requests see them.
 *
 * Contract: `get` is one lookup in an immutable map and allocates nothing. [interop I-1] [interop I-2] The map is built from the
 * descriptors (`policy_meta`, rank 1) and the routing (`routing_table`, rank 2) in the synchronous section that changes them; a
 * request keeps the provider that it loaded. A secret is accepted until its end by the wall clock, whether or not it was removed yet.
 * Bound: one entry for each provider.
 */
import { RonError, Snapshot, sched, type Cell } from '@ron/kernel';
import type { Descriptor } from '@ron/proto';
import type { LiveSecret } from '../signatures/verify.ts';
import type { PolicyMeta } from '../policy-meta.ts';
import { networksOf } from './networks.ts';

/** A provider at one time. */
export interface Provider {
  readonly descriptor: Descriptor;
  /** Another one once the provider was removed and added again; other changes and restarts keep it. 0 if its file is closed. */
  readonly incarnation: number;
  /** The secrets that are accepted now, the newest first. Empty if the provider is closed. */
  readonly secrets: readonly LiveSecret[];
  /** Why its webhooks are refused: a short text without paths. */
  readonly problem?: string | undefined;
  /** May be called without its object. */
  readonly countUse: (version: number) => void;
}

export interface TimedSecret extends LiveSecret {
  readonly ends_ms: number;
}

/** How the webhooks of a provider are verified. */
export interface Routing {
  readonly incarnation: number;
  /** Empty if the provider is closed. */
  readonly secrets: readonly TimedSecret[];
  /** Why it is closed. */
  readonly problem: string | undefined;
}

type Descriptors = Map<string, Descriptor>;
/** The state of `routing_table`: as many entries as there are descriptors. */
export type Routes = Map<string, Routing>;

interface Use {
  uses: number;
  last_used_ms: number;
}
/** Since the start, by version. They survive changes of the provider. */
type Uses = Map<number, Use>;

export class ProviderTable {
  readonly #policy: Cell<Pick<PolicyMeta, 'descriptors'>>;
  readonly #routes: Cell<Routes>;
  readonly #uses = new Map<string, Uses>();
  readonly #live = new Snapshot<ReadonlyMap<string, LiveProvider>>('providers', new Map());

  constructor(policy: Cell<Pick<PolicyMeta, 'descriptors'>>, routes: Cell<Routes>) {
    this.#policy = policy;
    this.#routes = routes;
  }

  get(name: string): Provider | undefined {
    return this.#live.load().get(name);
  }

  useOf(name: string, version: number): { readonly uses: number; readonly last_used_ms?: number } {
    return { uses: 0, ...this.#uses.get(name)?.get(version) };
  }

  /** Those that are closed. */
  closed(): string[] {
    return [...this.#live.load()].flatMap(([name, { problem }]) => (problem === undefined ? [] : [name]));
  }

  /** Takes effect for requests whose provider is looked up later. `versions` are those whose uses are kept. */
  set(descriptor: Descriptor, routing: Routing, versions: readonly number[]): void {
    const { name } = descriptor;
    const uses = this.#usesOf(name);
    for (const version of uses.keys()) if (!versions.includes(version)) uses.delete(version);
    this.#change((descriptors, routes) => {
      descriptors.set(name, descriptor);
      routes.set(name, routing);
    });
  }

  delete(name: string): void {
    this.#uses.delete(name);
    this.#change((descriptors, routes) => {
      descriptors.delete(name);
      routes.delete(name);
    });
  }

  /** Changes are rare, so the snapshot is built anew. */
  #change(apply: (descriptors: Descriptors, routes: Routes) => void): void {
    this.#policy.withSync(({ descriptors }) =>
      this.#routes.withSync((routes) => {
        apply(descriptors, routes);
        this.#live.swap(new Map([...descriptors.values()].map((each) => [each.name, this.#liveOf(each, routes)])));
      }),
    );
  }

  #liveOf(descriptor: Descriptor, routes: Routes): LiveProvider {
    const { name } = descriptor;
    const routing = routes.get(name)!;
    const before = this.#live.load().get(name);
    const isSame = before?.descriptor === descriptor && before.routing === routing;
    return isSame ? before : new LiveProvider(descriptor, routing, this.#usesOf(name));
  }

  #usesOf(name: string): Uses {
    const known = this.#uses.get(name);
    if (known !== undefined) return known;
    const uses: Uses = new Map();
    this.#uses.set(name, uses);
    return uses;
  }
}

export const unknownProvider = (): RonError =>
  new RonError('not_found', 'no such provider', { reason: 'POLICY_BLOCKED' });

export const closedProvider = (problem: string): RonError =>
  new RonError('forbidden', `the provider is closed: ${problem}`, { reason: 'POLICY_BLOCKED' });

class LiveProvider implements Provider {
  readonly descriptor: Descriptor;
  readonly routing: Routing;
  readonly countUse: (version: number) => void;
  readonly #first_end_ms: number;

  constructor(descriptor: Descriptor, routing: Routing, uses: Uses) {
    this.descriptor = descriptor;
    this.routing = routing;
    const { secrets } = routing;
    this.#first_end_ms = Math.min(...secrets.map(({ ends_ms }) => ends_ms));
    this.countUse = (version) => countUse(uses, version);
    networksOf(descriptor);
  }

  get incarnation(): number {
    return this.routing.incarnation;
  }

  get problem(): string | undefined {
    return this.routing.problem;
  }

  get secrets(): readonly LiveSecret[] {
    const { secrets } = this.routing;
    const wall_ms = sched.wall_ms();
    // The task `secret_refresh` removes ended secrets soon, so lists are rarely filtered.
    return wall_ms < this.#first_end_ms ? secrets : secrets.filter(({ ends_ms }) => wall_ms < ends_ms);
  }
}

function countUse(uses: Uses, version: number): void {
  const use = uses.get(version);
  const last_used_ms = sched.wall_ms();
  if (use === undefined) uses.set(version, { uses: 1, last_used_ms });
  else {
    use.uses += 1;
    use.last_used_ms = last_used_ms;
  }
}
