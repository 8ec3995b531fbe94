/**
 * The HTTP surface of interop: one row per route, with its scope, lane, body mode, schema and handler.
 *
 * To add a route, add a row here and its schema and handler to a file in `routes/`.
 */
import type { Route } from '@ron/ingress';
import { brownoutRoutes, type BrownoutRoutesInit } from './routes/brownout.ts';
import { deliveryRoutes, type DeliveryRoutesInit } from './routes/deliveries.ts';
import { objectRoutes, type ObjectRoutesInit } from './routes/objects.ts';
import { providerRoutes, type ProviderRoutesInit } from './routes/providers.ts';
import { putRoutes, type PutRoutesInit } from './routes/put.ts';
import { receiptRoutes, type ReceiptRoutesInit } from './routes/receipts.ts';
import { webhookRoutes, type WebhookRoutesInit } from './routes/webhooks.ts';

export type InteropRoutesInit = WebhookRoutesInit &
  PutRoutesInit &
  ObjectRoutesInit &
  ProviderRoutesInit &
  BrownoutRoutesInit &
  ReceiptRoutesInit &
  DeliveryRoutesInit;

export function routes(init: InteropRoutesInit): Route[] {
  return [
    ...webhookRoutes(init),
    ...putRoutes(init),
    ...objectRoutes(init),
    ...receiptRoutes(init),
    ...providerRoutes(init),
    ...brownoutRoutes(init),
    ...deliveryRoutes(init),
  ];
}
