/**
 * A simulated network under a virtual clock: lookups from random nodes while peers are slow, stall, leave and return.
 * The same seed gives the same objects, latencies and faults, so that runs with and without hedging can be compared.
 */
import { VirtualSched } from '@ron/kernel/testing';
import { DhtDriver } from '../driver.ts';
import { providerKey } from '../keys.ts';
import type { LookupEnd } from '../lookup/lookup.ts';
import { TestBreakers } from './breakers.ts';
import { MemoryNetwork, urlOf, type MemoryNode } from './network.ts';
import { addressOf, BUDGET_MS, LIMITS } from './world.ts';

export interface SimulationInit {
  readonly nodes: number;
  readonly lookups: number;
  readonly isHedged: boolean;
  /** The share of lookups in which the first `alpha` requests stall for 2 s. */
  readonly stalled?: number;
  /** The share of requests that take 300 ms longer. */
  readonly stragglers?: number;
  /** The share of nodes that are away at any moment; each comes back after a while. */
  readonly away?: number;
  /** Whether the objects exist. Default true. */
  readonly isProvided?: boolean;
  readonly seed?: number;
}

export interface SimulationResult {
  readonly found: number;
  readonly lookups: number;
  readonly requests: number;
  readonly hedges: number;
  /** Ascending, one for each lookup. */
  readonly took_ms: readonly number[];
  readonly hops: readonly number[];
}

const OBJECTS = 200;
const STALL_MS = 2000;
const STRAGGLE_MS = 300;
/** Median and spread of the round trip: p50 20 ms, p99 64 ms. */
const LATENCY = { median_ms: 20, sigma: 0.5 };
const AWAY_TICK_MS = 200;
/** Lookups begin this far apart. */
const SPACING_MS = 20;

/** The value below which the share `q` of the ascending values lies. */
export function quantile(values: readonly number[], q: number): number {
  return values[Math.min(values.length - 1, Math.ceil(q * values.length) - 1)] ?? Number.NaN;
}

export async function simulate(init: SimulationInit): Promise<SimulationResult> {
  const simulation = new Simulation(init);
  return await simulation.clock.during(() => simulation.run());
}

class Simulation {
  readonly clock = new VirtualSched();
  readonly #init: SimulationInit;
  readonly #chance: () => number;
  /** Of its own generator, so that all runs of a seed have the same lookups. */
  readonly #plan: () => number;
  readonly #network: MemoryNetwork;
  readonly #nodes: readonly MemoryNode[];
  readonly #drivers = new Map<MemoryNode, DhtDriver>();
  readonly #took_ms: number[] = [];
  readonly #hops: number[] = [];
  readonly #away: MemoryNode[] = [];
  #hedges = 0;
  #found = 0;

  constructor(init: SimulationInit) {
    this.#init = init;
    this.#chance = chanceOf(init.seed ?? 1);
    this.#plan = chanceOf((init.seed ?? 1) + 1_000_000);
    this.#network = new MemoryNetwork({ latency_ms: () => this.#latency_ms() });
    this.#nodes = this.#network.grow(init.nodes);
    for (const node of this.#nodes) this.#drivers.set(node, this.#driverOf(node));
    if (init.isProvided === false) return;
    for (let at = 0; at < OBJECTS; at += 1) {
      const id = this.#nodes[at % init.nodes]!.self;
      this.#network.provide(providerKey(addressOf(`object ${at}`)), { id, url: urlOf(id) });
    }
  }

  async run(): Promise<SimulationResult> {
    const churn = this.#churn();
    const running: Promise<void>[] = [];
    const begin = (): void => {
      running.push(this.#lookUp());
      if (running.length < this.#init.lookups) this.clock.timer(SPACING_MS, begin, 'simulated lookup');
    };
    begin();
    while (this.#took_ms.length < this.#init.lookups) {
      await this.clock.advance(Math.min(...this.clock.timers.map(({ due_ms }) => due_ms)) - this.clock.now_ms());
    }
    await Promise.all(running);
    churn.cancel();
    const ascending = (a: number, b: number): number => a - b;
    return {
      found: this.#found,
      lookups: this.#init.lookups,
      requests: this.#network.sent.length,
      hedges: this.#hedges,
      took_ms: this.#took_ms.toSorted(ascending),
      hops: this.#hops.toSorted(ascending),
    };
  }

  #driverOf(node: MemoryNode): DhtDriver {
    const limits = { ...LIMITS, beta: this.#init.isHedged ? LIMITS.beta : 0 };
    return new DhtDriver({
      peers: node,
      breakers: new TestBreakers(),
      limits: () => limits,
      observer: {
        onLookup: (_kind, took_ms, end: LookupEnd) => {
          this.#took_ms.push(took_ms);
          this.#hops.push(end.hops);
        },
        onHedge: (result) => void (result === 'started' && this.#hedges++),
      },
    });
  }

  async #lookUp(): Promise<void> {
    const chance = this.#plan;
    const node = this.#presentNode(chance());
    const object = Math.floor(chance() * OBJECTS);
    // A node does not look up its own objects.
    const isOwn = this.#nodes[object % this.#nodes.length] === node;
    const address = addressOf(`object ${isOwn ? (object + 1) % OBJECTS : object}`);
    if (chance() < (this.#init.stalled ?? 0)) node.stallNext(LIMITS.alpha, STALL_MS);
    const deadline = new AbortController();
    const timer = this.clock.timer(BUDGET_MS, () => deadline.abort(new Error('deadline')), 'simulated deadline');
    const { providers } = await this.#drivers
      .get(node)!
      .findProviders(address, { signal: deadline.signal, verdict: () => undefined });
    timer.cancel();
    node.stallNext(0, 0);
    if (providers.length > 0) this.#found += 1;
  }

  #presentNode(chance: number): MemoryNode {
    const first = Math.floor(chance * this.#nodes.length);
    const order = [...this.#nodes.slice(first), ...this.#nodes.slice(0, first)];
    return order.find(({ behavior }) => behavior === 'normal')!;
  }

  /** Sends a node away and brings the one that is away longest back. */
  #churn(): { cancel(): void } {
    const away_max = Math.round((this.#init.away ?? 0) * this.#nodes.length);
    if (away_max === 0) return { cancel: () => undefined };
    let timer = this.clock.timer(AWAY_TICK_MS, () => tick(), 'simulated churn');
    const tick = (): void => {
      const leaving = this.#nodes[Math.floor(this.#chance() * this.#nodes.length)]!;
      if (leaving.behavior === 'normal') {
        leaving.behavior = 'gone';
        this.#away.push(leaving);
      }
      if (this.#away.length > away_max) this.#away.shift()!.behavior = 'normal';
      timer = this.clock.timer(AWAY_TICK_MS, tick, 'simulated churn');
    };
    while (this.#away.length < away_max) tick();
    return { cancel: () => timer.cancel() };
  }

  #latency_ms(): number {
    const normal = Math.sqrt(-2 * Math.log(1 - this.#chance())) * Math.cos(2 * Math.PI * this.#chance());
    const slow_ms = this.#chance() < (this.#init.stragglers ?? 0) ? STRAGGLE_MS : 0;
    return LATENCY.median_ms * Math.exp(LATENCY.sigma * normal) + slow_ms;
  }
}

/** A small generator with a seed (mulberry32). */
function chanceOf(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}
