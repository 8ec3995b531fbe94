/**
 * The HTTP surface of edge: one row per route, with its scope, lane, body mode, schema and handler.
 *
 * To add a route, add a row here and its schema and handler to a file in `routes/`.
 */
import type { Route } from '@ron/ingress';
import { assetRoute, type AssetRouteInit } from './routes/assets.ts';
import { fillRoutes, type FillRoutesInit } from './routes/fills.ts';
import { mapRoutes, type MapRouteInit } from './routes/map.ts';
import { packRoutes, type PackRoutesInit } from './routes/packs.ts';
import { purgeRoute, type PurgeRouteInit } from './routes/purge.ts';
import { whyRoute } from './routes/why.ts';
import type { ExplainInit } from './why/explain-asset.ts';

export type EdgeRoutesInit = AssetRouteInit &
  MapRouteInit &
  PackRoutesInit &
  FillRoutesInit &
  PurgeRouteInit &
  ExplainInit;

export function routes(init: EdgeRoutesInit): Route[] {
  return [
    assetRoute(init),
    ...packRoutes(init),
    ...mapRoutes(init),
    purgeRoute(init),
    whyRoute(init),
    ...fillRoutes(init),
  ];
}
