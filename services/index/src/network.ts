/**
 * The DHT of this node, as the service wires it: nothing in `standalone`, otherwise peers and lookups on them.
 *
 * Contract: `standalone` loads no DHT library. In `join` the task `dht` loads it after the service listens.
 */
import { untilAborted } from '@ron/kernel';
import type { ServiceRuntime } from '@ron/service';
import type { concurrency } from './concurrency.ts';
import type { IndexConfig } from './config.ts';
import { DhtDriver } from './dht/driver.ts';
import { JoinedPeers, type JoinedPeersInit } from './dht/joined-peers.ts';
import type { PeerBreakers } from './dht/breakers.ts';
import type { IndexMeters } from './metrics.ts';

export interface NetworkInit extends Pick<JoinedPeersInit, 'key' | 'store' | 'names' | 'warn'> {
  readonly current: { readonly value: IndexConfig };
  readonly runtime: ServiceRuntime<typeof concurrency>;
  readonly breakers: PeerBreakers;
  readonly meters: IndexMeters;
}

export interface Network extends AsyncDisposable {
  /** Undefined in `standalone`. */
  readonly dht: DhtDriver | undefined;
  readonly peers: JoinedPeers | undefined;
  /** The readiness gate `dht`. */
  readonly problem: string | undefined;
  readonly known: number;
  /** The task `dht`. */
  run(stopping: AbortSignal): Promise<void>;
}

export function openNetwork(init: NetworkInit): Network {
  const { current, runtime, breakers, meters, key, store, names, warn } = init;
  const onRetry = runtime.retryCounter('dht_request');
  const { dht: config, index } = current.value;
  if (config.mode === 'standalone') return standalone();
  const peers = new JoinedPeers({
    key,
    store,
    names,
    warn,
    network_key_file: config.network_key_file!,
    listen: config.listen,
    bootstrap: config.bootstrap,
    allow: config.allow,
    storage_url: index.storage_url,
  });
  const dht = new DhtDriver({
    peers,
    breakers,
    limits: () => current.value.dht,
    observer: {
      onLookup: (_kind, took_ms) => meters.dht_lookup_ms.observe(took_ms),
      onHedge: (result) => meters.hedges.at(result).inc(),
      onRetry: (_op, result) => onRetry(result),
    },
  });
  return {
    dht,
    peers,
    get problem() {
      return peers.problem;
    },
    get known() {
      return peers.known;
    },
    run: (stopping) => peers.run(stopping),
    async [Symbol.asyncDispose]() {
      await dht[Symbol.asyncDispose]();
      await peers[Symbol.asyncDispose]();
    },
  };
}

const standalone = (): Network => ({
  dht: undefined,
  peers: undefined,
  problem: undefined,
  known: 0,
  run: untilAborted,
  [Symbol.asyncDispose]: async () => undefined,
});
