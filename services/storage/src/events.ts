/** Domain events of storage: their log levels, and the work that must not be missed when one is published. */
import type { ObjectStore } from '@ron/cas';
import type { Broadcast } from '@ron/kernel';
import { formatAddress } from '@ron/proto';
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
}

/** Counts each event and evicts the objects that it concerns before subscribers receive it: subscribers may lag. */
export function eventPublisher({ metrics, events, hot, store }: EventPublisherInit): (event: EngineEvent) => void {
  const count = eventCounter(metrics);
  return (event) => {
    count(event);
    if (event.kind === 'removed' || event.kind === 'retyped') hot.forget(event.address);
    if (event.kind === 'damaged') {
      const hash = Buffer.from(event.record.id_hex, 'hex');
      hot.forget(formatAddress(hash));
      store().forget(hash);
    }
    events.publish(event);
  };
}

export function eventLevel(event: EngineEvent): EventLevel {
  if (event.kind === 'removed' || event.kind === 'retyped') return 'debug';
  if (event.kind === 'volume') return event.change === 'lost' ? 'error' : 'info';
  return event.kind === 'state' && event.state.condition === 'ok' ? 'info' : 'error';
}
