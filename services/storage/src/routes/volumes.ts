/** Handlers for operators: list volumes and decide about them. */
import type { ObjectStore } from '@ron/cas';
import { json, type RouteAnswer } from '@ron/ingress';
import type { VolumesAnswer } from '@ron/proto';
import type { Maintenance } from '../maintenance/maintenance.ts';
import type { VolumeDecisions } from '../volumes/volume-decisions.ts';
import type { Volumes } from '../volumes/volumes.ts';

export interface VolumeAdminInit {
  readonly volumes: Volumes;
  readonly decisions: VolumeDecisions;
  readonly store: ObjectStore;
  readonly maintenance: Pick<Maintenance, 'scrubs'>;
}

interface Context {
  readonly query: { readonly volume: string; readonly force?: 'true' | 'false' };
}

export function volumeHandlers({ volumes, decisions, store, maintenance }: VolumeAdminInit) {
  const list = (): RouteAnswer => {
    const answer: VolumesAnswer = {
      volumes: volumes.views,
      scrubs: maintenance.scrubs,
      ...(volumes.incomplete !== undefined && { incomplete: volumes.incomplete }),
      cache: { used_bytes: store.cache.bytes, bytes_max: store.cache.bytes_max },
    };
    return json(200, answer);
  };
  const decide =
    (act: (name: string, isForced: boolean) => Promise<void>) =>
    async ({ query }: Context): Promise<RouteAnswer> => {
      await act(query.volume, query.force === 'true');
      return list();
    };
  return {
    volumes: list,
    drain: decide((name) => decisions.drain(name)),
    undrain: decide((name) => decisions.undrain(name)),
    lose: decide((name) => decisions.lose(name)),
    restore: decide((name) => decisions.restore(name)),
    remove: decide((name, isForced) => decisions.remove(name, isForced)),
  };
}
