/** The one row of all assets: tiles and files of packs, assets of origins, objects of storage. */
import { route, type Route } from '@ron/ingress';
import { RonError } from '@ron/kernel';

export interface AssetRouteInit {
  /** Whether reads need a capability. */
  readonly guardReads: boolean;
}

export function assetRoute({ guardReads }: AssetRouteInit): Route {
  return route({
    method: 'GET',
    path: '/edge/assets/*',
    summary: 'Returns a tile or file of a pack, an asset of an origin, or an object of storage.',
    scope: guardReads ? 'edge:get' : null,
    lane: 'inline',
    body: 'none',
    handler: () => {
      throw new RonError('not_found', 'no such asset');
    },
  });
}
