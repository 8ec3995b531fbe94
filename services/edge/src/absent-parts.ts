/** Parts of edge that hold nothing and refuse everything, until the real ones are opened in their place. */
import { RonError } from '@ron/kernel';
import type { AssetCache, AssetRam } from './cache/asset-cache.ts';
import type { RunningPart } from './running-part.ts';

const absent = (part: string): RonError => new RonError('not_ready', `${part} is not open`);

const NO_RAM: AssetRam = {
  bytes: 0,
  get: () => undefined,
  find: () => undefined,
  set: () => undefined,
  setNegative: () => undefined,
  delete: () => undefined,
  deleteWhere: () => 0,
};

export function noCache(): AssetCache & RunningPart {
  return {
    ram: NO_RAM,
    problem: undefined,
    disk_bytes: 0,
    generation: 0,
    find: () => Promise.resolve(undefined),
    writer: () => {
      throw absent('the cache');
    },
    keep: () => Promise.resolve(false),
    purge: () => Promise.resolve(0),
    run: () => Promise.resolve(),
  };
}
