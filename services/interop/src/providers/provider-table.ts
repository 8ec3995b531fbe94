/**
 * The providers as requests see them.
 *
 * Contract: `get` is one lookup in an immutable map and allocates nothing. [interop I-1] [interop I-2] One writer changes
 * descriptors (`policy_meta`, rank 1) and routing (`routing_table`, rank 2) in one synchronous section and swaps the map; a request
 * keeps the provider that it loaded. A secret is accepted until its end by the wall clock, whether or not it was removed yet.
 * Bound: one entry for each provider.
 */
import { Snapshot, sched, type Cell } from '@ron/kernel';
import type { Descriptor } from '@ron/proto';
import type { LiveSecret } from '../webhooks/verify.ts';
import { networksOf } from './networks.ts';

/** A provider at one time. */
export interface Provider {
  readonly descriptor: Descriptor;
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

/** How the webhooks of a provider are verified, and where they go. */
export interface Routing {
  readonly topic: string;
  readonly secrets: readonly TimedSecret[];
  readonly problem: string | undefined;
}

export type Policies = Map<string, Descriptor>;
export type Routes = Map<string, Routing>;
interface Use {
  uses: number;
  last_used_ms: number;
}
/** Since the start, by version. They survive changes of the provider. */
type Uses = Map<number, Use>;

export class ProviderTable {
  readonly #policies: Cell<Policies>;
  readonly #routes: Cell<Routes>;
  readonly #uses = new Map<string, Uses>();
  readonly #live = new Snapshot<ReadonlyMap<string, Provider>>('providers', new Map());

  constructor(policies: Cell<Policies>, routes: Cell<Routes>) {
    this.#policies = policies;
    this.#routes = routes;
  }

  get(name: string): Provider | undefined {
    return this.#live.load().get(name);
  }

  usesOf(name: string, version: number): { readonly uses: number; readonly last_used_ms?: number } {
    return { uses: 0, ...this.#uses.get(name)?.get(version) };
  }

  /** Those that are closed. */
  closed(): string[] {
    return [...this.#live.load()].flatMap(([name, { problem }]) => (problem === undefined ? [] : [name]));
  }

  /** Takes effect for requests whose provider is looked up later. `versions` are those whose uses are kept. */
  set(descriptor: Descriptor, routing: Routing, versions: readonly number[]): void {
    const { name } = descriptor;
    let uses = this.#uses.get(name);
    if (uses === undefined) this.#uses.set(name, (uses = new Map<number, Use>()));
    for (const version of uses.keys()) if (!versions.includes(version)) uses.delete(version);
    const provider = new LiveProvider(descriptor, routing, uses);
    this.#policies.withSync((policies) => {
      policies.set(name, descriptor);
      this.#routes.withSync((routes) => {
        routes.set(name, routing);
        this.#live.swap(new Map([...this.#live.load(), [name, provider]]));
      });
    });
  }

  delete(name: string): void {
    this.#uses.delete(name);
    this.#policies.withSync((policies) => {
      policies.delete(name);
      this.#routes.withSync((routes) => {
        routes.delete(name);
        this.#live.swap(new Map([...this.#live.load()].filter(([other]) => other !== name)));
      });
    });
  }
}

class LiveProvider implements Provider {
  readonly descriptor: Descriptor;
  readonly problem: string | undefined;
  readonly countUse: (version: number) => void;
  readonly #secrets: readonly TimedSecret[];
  readonly #first_end_ms: number;

  constructor(descriptor: Descriptor, { secrets, problem }: Routing, uses: Uses) {
    this.descriptor = descriptor;
    this.problem = problem;
    this.#secrets = secrets;
    this.#first_end_ms = Math.min(...secrets.map(({ ends_ms }) => ends_ms));
    this.countUse = (version) => countUse(uses, version);
    networksOf(descriptor);
  }

  get secrets(): readonly LiveSecret[] {
    const wall_ms = sched.wall_ms();
    // The task `secret_refresh` removes ended secrets soon, so lists are rarely filtered.
    return wall_ms < this.#first_end_ms ? this.#secrets : this.#secrets.filter(({ ends_ms }) => wall_ms < ends_ms);
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
