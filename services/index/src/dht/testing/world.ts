/** One node with a driver on a network in memory, under a virtual clock. */
import { VirtualSched } from '@ron/kernel/testing';
import { formatAddress, type Address } from '@ron/proto';
import { hash } from 'node:crypto';
import type { LookupTrace } from '../dht.ts';
import { DhtDriver, type DhtObserver } from '../driver.ts';
import { TestBreakers } from './breakers.ts';
import { MemoryNetwork, type MemoryNetworkInit, type MemoryNode } from './network.ts';

export const LIMITS = { alpha: 3, beta: 2, hedge_ms: 150 };
export const BUDGET_MS = 1150;

export function addressOf(text: string): Address {
  return formatAddress(hash('sha256', text, 'buffer'));
}

export function newTrace(): LookupTrace {
  return { peers: [], hedges_started: 0, hedges_won: 0, hedges_refused: 0 };
}

export interface WorldInit extends MemoryNetworkInit {
  readonly nodes: number;
  readonly observer?: DhtObserver;
}

export class World {
  readonly clock = new VirtualSched();
  readonly network: MemoryNetwork;
  readonly breakers = new TestBreakers();
  readonly node: MemoryNode;
  readonly driver: DhtDriver;
  readonly nodes: readonly MemoryNode[];

  constructor(init: WorldInit) {
    this.network = new MemoryNetwork(init);
    this.nodes = this.network.grow(init.nodes);
    this.node = this.network.add('self');
    this.network.fillTables();
    const { breakers } = this;
    this.driver = new DhtDriver({ peers: this.node, breakers, limits: () => LIMITS, observer: init.observer ?? {} });
  }

  /** Runs `use` and moves the clock until its promise has settled. Returns the time that it took, too. */
  async time<T>(use: () => Promise<T>): Promise<{ value: T; took_ms: number }> {
    const began_ms = this.clock.now_ms();
    const ended = new AbortController();
    const outcome = use().finally(() => ended.abort());
    await this.clock.settle();
    while (!ended.signal.aborted) await this.clock.advance(1);
    return { value: await outcome, took_ms: this.clock.now_ms() - began_ms };
  }

  /** Like `time`, with the virtual clock installed. */
  during<T>(use: () => Promise<T>): Promise<{ value: T; took_ms: number }> {
    return this.clock.during(() => this.time(use));
  }

  /** Aborts after `after_ms` of virtual time. */
  signal(after_ms = BUDGET_MS): AbortSignal {
    const controller = new AbortController();
    this.clock.timer(after_ms, () => controller.abort(new Error('the deadline has passed')), 'test deadline');
    return controller.signal;
  }
}
