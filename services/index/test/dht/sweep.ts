/** The provider sweep on a database and a network in memory. As a program: sweeps the directory, and reports each saved position. */
import { writeSync } from 'node:fs';
import { sched, untilAborted } from '@ron/kernel';
import type { Address } from '@ron/proto';
import { DhtDriver } from '../../src/dht/driver.ts';
import { providerKey } from '../../src/dht/keys.ts';
import { Providing } from '../../src/dht/provide/providing.ts';
import { TestBreakers } from '../../src/dht/testing/breakers.ts';
import { MemoryNetwork } from '../../src/dht/testing/network.ts';
import type { IndexStore } from '../../src/store/index-store.ts';
import { addressOf, openStore } from '../store/support.ts';

export const OBJECTS = 1024;
const ROOMY = { providers_max: 10_000, providers_per_subject: 10_000, names_seen: 10 };

export interface Sweeping {
  readonly providing: Providing;
  /** Whether a peer has a record of the object. */
  readonly isProvided: (address: Address) => boolean;
}

export function newSweep(store: IndexStore, onSaved: (cursor: Uint8Array) => void): Sweeping {
  const network = new MemoryNetwork({ latency_ms: () => 0 });
  const [peer] = network.grow(3);
  const node = network.add('self');
  network.fillTables();
  const limits = { alpha: 3, beta: 2, hedge_ms: 150 };
  const dht = new DhtDriver({ peers: node, breakers: new TestBreakers(), limits: () => limits });
  const warn = (error: unknown): void => void writeSync(2, `${String(error)}\n`);
  const observed = new Proxy(store, {
    get: (target, property: keyof IndexStore) => {
      if (property !== 'saveCursor') return bound(target, property);
      return async (name: string, cursor: Uint8Array | undefined): Promise<void> => {
        await target.saveCursor(name, cursor);
        if (name === 'provider_sweep') onSaved(cursor!);
      };
    },
  });
  const providing = new Providing({ dht, store: observed, warn, isProvider: true });
  return { providing, isProvided: (address) => peer!.providersOf(providerKey(address)).length > 0 };
}

function bound(target: IndexStore, property: keyof IndexStore): unknown {
  const value: unknown = target[property];
  return typeof value === 'function' ? (value as () => unknown).bind(target) : value;
}

if (import.meta.main) {
  const store = await openStore(process.argv[2], { quotas: () => ROOMY });
  const entries = Array.from({ length: OBJECTS }, (_, at) => ({
    address: addressOf(`object ${at}`),
    size: at,
    media_type: 'text/plain',
  }));
  await store.announce('storage', entries.slice(0, OBJECTS / 2), [], sched.wall_ms());
  await store.announce('storage', entries.slice(OBJECTS / 2), [], sched.wall_ms());
  const { signal } = new AbortController();
  const { providing } = newSweep(store, (cursor) => void writeSync(1, `${Buffer.from(cursor).toString('hex')}\n`));
  // The timers of the sweep do not keep the process alive; the pipe to the parent does.
  process.stdin.resume();
  await Promise.race([providing.run(signal), untilAborted(signal)]);
}
