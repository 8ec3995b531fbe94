/** The recent deliveries, and live events. */
import { events, json, route, Type, type Route, type ServerSentEvent } from '@ron/ingress';
import type { Broadcast } from '@ron/kernel';
import { INTEROP_LIMITS } from '@ron/proto';
import type { RecentDeliveries } from '../deliveries/recent-deliveries.ts';
import type { InteropEvent } from '../events.ts';

const Query = Type.Object(
  {
    after: Type.Optional(Type.String({ pattern: '^(0|[1-9][0-9]{0,15})$' })),
    limit: Type.Optional(Type.String({ pattern: '^[1-9][0-9]{0,2}$' })),
  },
  { additionalProperties: false },
);

export interface DeliveryRoutesInit {
  readonly recent: RecentDeliveries;
  readonly live: Pick<Broadcast<InteropEvent>, 'subscribe'>;
}

export function deliveryRoutes({ recent, live }: DeliveryRoutesInit): Route[] {
  const ADMIN = { method: 'GET', scope: 'interop:admin', lane: 'inline', body: 'none' } as const;
  return [
    route({
      ...ADMIN,
      path: '/admin/deliveries',
      summary: 'Lists recent deliveries after a number, the oldest first, without bodies. `lost` counts those that are gone.',
      schema: { query: Query },
      handler: ({ query }) => {
        const limit = Math.min(Number(query.limit ?? 100), INTEROP_LIMITS.deliveries_page);
        return json(200, recent.page(Number(query.after ?? 0), limit), { 'Cache-Control': 'no-store' });
      },
    }),
    route({
      ...ADMIN,
      path: '/admin/events',
      summary: 'Streams deliveries as they happen (server-sent events). `lag` reports events that a slow reader lost.',
      handler: (context) => events(deliveriesOf(live, context.gone)),
    }),
  ];
}

/** Bound: the capacity of the broadcast for each reader. */
async function* deliveriesOf(
  live: Pick<Broadcast<InteropEvent>, 'subscribe'>,
  gone: AbortSignal,
): AsyncGenerator<ServerSentEvent, void, void> {
  const subscription = live.subscribe('admin_events');
  let lost = 0;
  try {
    for (;;) {
      const event = await subscription.recv(gone);
      if (event === undefined) return;
      if (subscription.lagged_total > lost) {
        yield { event: 'lag', data: JSON.stringify({ lost: subscription.lagged_total - lost }) };
        lost = subscription.lagged_total;
      }
      if (event.kind !== 'delivery') continue;
      yield { event: 'delivery', id: String(event.delivery.seq), data: JSON.stringify(event.delivery) };
    }
  } finally {
    subscription.close();
  }
}
