/** The recent deliveries, and live events. */
import { events, json, route, Type, type Route, type ServerSentEvent } from '@ron/ingress';
import { RonError, type Broadcast } from '@ron/kernel';
import { INTEROP_LIMITS, REJECT_REASONS, type DeliveriesPage, type DeliveryDto } from '@ron/proto';
import type { RecentDeliveries } from '../deliveries/recent-deliveries.ts';
import type { InteropEvent } from '../events.ts';
import type { Fields } from './fields.ts';

const LIMIT_DEFAULT = 100;
const LIMIT_MAX = INTEROP_LIMITS.deliveries_page;
const OUTCOMES = [
  'accepted',
  'duplicate',
  'spooled',
  'refused',
  'challenge',
] as const satisfies DeliveryDto['outcome'][];

const Query = Type.Object(
  {
    after: Type.Optional(Type.String({ pattern: '^(0|[1-9][0-9]{0,15})$' })),
    limit: Type.Optional(Type.String({ pattern: '^[1-9][0-9]{0,2}$', description: `At most ${LIMIT_MAX}.` })),
  },
  { additionalProperties: false },
);

const Delivery = Type.Object(
  {
    seq: Type.Integer(),
    at_ms: Type.Integer(),
    provider: Type.String(),
    outcome: Type.Union(OUTCOMES.map((name) => Type.Literal(name))),
    corr_id: Type.String({ description: 'Empty for a sum of refusals.' }),
    bytes: Type.Optional(Type.Integer()),
    b3: Type.Optional(Type.String()),
    receipt: Type.Optional(Type.String()),
    event: Type.Optional(Type.String()),
    delivery_id: Type.Optional(Type.String()),
    reason: Type.Optional(Type.Union(REJECT_REASONS.map((name) => Type.Literal(name)))),
    detail: Type.Optional(Type.String()),
    count: Type.Optional(Type.Integer({ description: 'Equal refusals that were summed into this entry.' })),
    test: Type.Optional(Type.Boolean()),
  } satisfies Fields<DeliveryDto>,
  { additionalProperties: false },
);
const Page = Type.Object(
  {
    deliveries: Type.Array(Delivery, { maxItems: LIMIT_MAX }),
    next: Type.Integer({ description: 'Pass it as `after` for later ones.' }),
    lost: Type.Integer({ description: 'Entries after `after`, up to `next`, that are gone.' }),
  } satisfies Fields<DeliveriesPage>,
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
      summary:
        'Lists recent deliveries after a number, the oldest first, without bodies. `lost` counts those that are gone.',
      schema: { query: Query, response: { 200: Page } },
      handler: ({ query }) => {
        const limit = Number(query.limit ?? LIMIT_DEFAULT);
        if (limit > LIMIT_MAX) throw new RonError('validation', `limit: at most ${LIMIT_MAX}`);
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
