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
import { Providing, type ProvidingInit } from './dht/provide/providing.ts';
import type { IndexMeters } from './metrics.ts';

type Runtime = ServiceRuntime<typeof concurrency>;

export interface NetworkInit extends Pick<JoinedPeersInit, 'key' | 'names' | 'warn'> {
  readonly store: JoinedPeersInit['store'] & ProvidingInit['store'];
  readonly current: { readonly value: IndexConfig };
  readonly runtime: Runtime;
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
  /** Keeps the own objects and names in the DHT; undefined in `standalone`. */
  readonly providing: Providing | undefined;
  /** The task `dht`. */
  run(stopping: AbortSignal): Promise<void>;
  /** The task `provider_sweep`. */
  provide(stopping: AbortSignal): Promise<void>;
}

export function openNetwork(init: NetworkInit): Network {
  const { current, runtime, breakers, meters, key, store, names, warn } = init;
  const onRetry = runtime.retryCounter('dht_request');
  const { dht: config, index } = current.value;
  if (config.mode === 'standalone') return standalone(runtime);
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
  const providing = new Providing({ dht, store, warn, isProvider: index.storage_url !== undefined });
  measurePending(runtime, () => providing.pending);
  return {
    dht,
    peers,
    providing,
    get problem() {
      return peers.problem;
    },
    get known() {
      return peers.known;
    },
    run: (stopping) => peers.run(stopping),
    provide: (stopping) => providing.run(stopping),
    async [Symbol.asyncDispose]() {
      await dht[Symbol.asyncDispose]();
      await peers[Symbol.asyncDispose]();
    },
  };
}

function standalone(runtime: Runtime): Network {
  measurePending(runtime, () => 0);
  return {
    dht: undefined,
    peers: undefined,
    providing: undefined,
    problem: undefined,
    known: 0,
    run: untilAborted,
    provide: untilAborted,
    [Symbol.asyncDispose]: async () => undefined,
  };
}

/** The loops of `Providing` hold the items themselves. */
function measurePending(runtime: Runtime, pending: () => number): void {
  runtime.own('provide', () => ({
    get depth() {
      return pending();
    },
    close: () => undefined,
  }));
}
