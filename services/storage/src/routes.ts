/** The HTTP surface of storage. */
import type { Route } from '@ron/ingress';
import { adminRoutes, type AdminRoutesInit } from './routes/admin.ts';
import { objectRoutes, type ObjectRoutesInit } from './routes/objects.ts';
import { pinRoutes } from './routes/pins.ts';
import { uploadRoutes, type UploadRoutesInit } from './routes/uploads.ts';

export type StorageRoutesInit = ObjectRoutesInit & UploadRoutesInit & AdminRoutesInit;

export function routes(init: StorageRoutesInit): Route[] {
  return [...objectRoutes(init), ...uploadRoutes(init), ...pinRoutes(init.store), ...adminRoutes(init)];
}
