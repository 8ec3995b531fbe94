/** Domain events of storage: their log levels, and the work that must not be missed when one is published. */
import type { ObjectStore } from '@ron/cas';
import type { Broadcast } from '@ron/kernel';
import { formatAddress, type Address } from '@ron/proto';
import type { EventLevel } from '@ron/service';
import type { Metrics } from '@ron/telemetry';
import { eventCounter } from './metrics.ts';
import type { HotObjects } from './objects/hot-objects.ts';
import type { EngineEvent } from './volumes/engine.ts';

export interface EventPublisherInit {
  readonly metrics: Metrics;
  readonly events: Broadcast<EngineEvent>;
  readonly hot: HotObjects;
  readonly store: () => ObjectStore;
  /** Called for each object that changed. */
  readonly onChanged: (address: Address) => void;
  /** Called when volumes have changed, and with them any number of objects. */
  readonly onVolumes: () => void;
}

/** Counts each event and evicts the objects that it concerns before subscribers receive it: subscribers may lag. */
export function eventPublisher(init: EventPublisherInit): (event: EngineEvent) => void {
  const { metrics, events, hot, store, onChanged, onVolumes } = init;
  const count = eventCounter(metrics);
  return (event) => {
    count(event);
    if (event.kind === 'removed' || event.kind === 'retyped') {
      hot.forget(event.address);
      onChanged(event.address);
    }
    if (event.kind === 'volume') onVolumes();
    if (event.kind === 'damaged') {
      const hash = Buffer.from(event.record.id_hex, 'hex');
      const address = formatAddress(hash);
      hot.forget(address);
      store().forget(hash);
      if (store().has(address)) onChanged(address);
    }
    events.publish(event);
  };
}

export function eventLevel(event: EngineEvent): EventLevel {
  if (event.kind === 'removed' || event.kind === 'retyped') return 'debug';
  if (event.kind === 'volume') return event.change === 'lost' ? 'error' : 'info';
  return event.kind === 'state' && event.state.condition === 'ok' ? 'info' : 'error';
}
