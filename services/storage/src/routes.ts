/** The HTTP surface of storage. */
import type { Route } from '@ron/ingress';
import { adminRoutes, type AdminRoutesInit } from './routes/admin.ts';
import { objectRoutes, type ObjectRoutesInit } from './routes/objects.ts';
import { pinRoutes } from './routes/pins.ts';
import { uploadRoutes, type UploadRoutesInit } from './routes/uploads.ts';
import { volumeRoutes, type VolumeRoutesInit } from './routes/volumes.ts';

export type StorageRoutesInit = ObjectRoutesInit & UploadRoutesInit & AdminRoutesInit & VolumeRoutesInit;

export function routes(init: StorageRoutesInit): Route[] {
  return [
    ...objectRoutes(init),
    ...uploadRoutes(init),
    ...pinRoutes(init.store),
    ...adminRoutes(init),
    ...volumeRoutes(init),
  ];
}
