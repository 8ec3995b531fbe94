/**
 * The HTTP surface of index: one row per route, with its scope, lane, body mode, schema and handler.
 *
 * To add a route, add a row here, its schemas to `routes/schemas.ts` and its handler to a file in `routes/`.
 */
import type { Route } from '@ron/ingress';

export function routes(): Route[] {
  return [];
}
