/** What an operator looks at and sets going. */
import type { ObjectStore, Volume } from '@ron/cas';
import { json, route, type Route } from '@ron/ingress';
import { Type } from 'typebox';
import { strict } from './schemas.ts';

const VolumesSchema = Type.Object(
  {
    volumes: Type.Array(
      Type.Object(
        {
          name: Type.String(),
          domain: Type.String(),
          condition: Type.String(),
          reason: Type.String(),
          used_bytes: Type.Integer(),
          segments: Type.Integer(),
        },
        strict,
      ),
    ),
    cache: Type.Object({ used_bytes: Type.Integer(), bytes_max: Type.Integer() }, strict),
  },
  strict,
);

export interface AdminRoutesInit {
  readonly volume: Volume;
  readonly store: ObjectStore;
}

export function adminRoutes({ volume, store }: AdminRoutesInit): Route[] {
  return [
    route({
      method: 'GET',
      path: '/admin/volumes',
      summary: 'The volumes, their state and what they hold.',
      scope: 'storage:admin',
      lane: 'inline',
      body: 'none',
      schema: { response: { 200: VolumesSchema } },
      handler: () =>
        json(200, {
          volumes: [{ name: volume.name, domain: volume.domain, ...volume.state, ...volume.stats() }],
          cache: { used_bytes: store.cache.used_bytes, bytes_max: store.cache.bytes_max },
        }),
    }),
  ];
}
