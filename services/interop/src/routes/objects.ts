/** `GET /o/{addr}` and HEAD: open, unless `auth.reads` is set. */
import { route, Type, type Route } from '@ron/ingress';
import type { ObjectReads } from '../bridge/objects.ts';

const Params = Type.Object({ addr: Type.String({ maxLength: 256 }) }, { additionalProperties: false });

export interface ObjectRoutesInit {
  readonly objects: Pick<ObjectReads, 'handle'>;
  /** Whether reads need a capability. */
  readonly guardReads: boolean;
}

export function objectRoutes({ objects, guardReads }: ObjectRoutesInit): Route[] {
  return [
    route({
      method: 'GET',
      path: '/o/:addr',
      summary:
        'Returns an object of storage, a range of it, or with proof=bao a slice with a proof against the address.',
      scope: guardReads ? 'interop:get' : null,
      facts: ({ params }) => ({ address: params['addr'] }),
      lane: 'read',
      body: 'none',
      deadline: 'request',
      statuses: [200, 206, 304],
      schema: { params: Params },
      handler: (context) => objects.handle(context),
    }),
  ];
}
