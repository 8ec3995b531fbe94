/** Pins: what is to stay when what is not pinned is reclaimed. */
import type { ObjectStore } from '@ron/cas';
import { empty, route, type Route } from '@ron/ingress';
import { addressFrom } from '../objects/objects.ts';
import { Addr, byAddress } from './schemas.ts';

export function pinRoutes(store: ObjectStore): Route[] {
  const pin = {
    path: '/o/:addr/pin',
    scope: 'storage:pin',
    lane: 'put',
    body: 'none',
    deadline: 'put',
    facts: byAddress,
    schema: { params: Addr },
  } as const;
  return [
    route({
      ...pin,
      method: 'PUT',
      summary: 'Keeps the object when what is not pinned is reclaimed.',
      handler: async ({ params, deadline }) => {
        await store.pin(addressFrom(params.addr), deadline.signal);
        return empty(204);
      },
    }),
    route({
      ...pin,
      method: 'DELETE',
      summary: 'Takes the pin away.',
      handler: async ({ params, deadline }) => {
        await store.unpin(addressFrom(params.addr), deadline.signal);
        return empty(204);
      },
    }),
  ];
}
