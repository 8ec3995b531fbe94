/**
 * The HTTP surface of edge: one row per route, with its scope, lane, body mode, schema and handler.
 *
 * To add a route, add a row here and its schema and handler to a file in `routes/`.
 */
import type { Route } from '@ron/ingress';
import { assetRoute, type AssetRouteInit } from './routes/assets.ts';
import { mapRoutes, type MapRouteInit } from './routes/map.ts';
import { packRoutes, type PackRoutesInit } from './routes/packs.ts';

export interface EdgeRoutesInit extends AssetRouteInit, MapRouteInit, PackRoutesInit {}

export function routes(init: EdgeRoutesInit): Route[] {
  return [assetRoute(init), ...packRoutes(init), ...mapRoutes(init)];
}
