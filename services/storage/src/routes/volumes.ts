/** The volumes: what they are like, and what an operator decides about them. */
import type { ObjectStore } from '@ron/cas';
import { json, route, type Route } from '@ron/ingress';
import type { ScrubInfo, VolumeInfo, VolumesAnswer, VolumeVerb } from '@ron/proto';
import { Type } from 'typebox';
import type { Upkeep } from '../upkeep/upkeep.ts';
import type { VolumeDecisions } from '../volumes/volume-decisions.ts';
import type { Volumes } from '../volumes/volumes.ts';
import { strict, type Fields } from './schemas.ts';

const Count = Type.Integer();
const VolumeSchema = Type.Object(
  {
    id: Type.Optional(Type.String()),
    name: Type.String(),
    domain: Type.String(),
    weight: Type.Number(),
    life: Type.String(),
    condition: Type.String(),
    reason: Type.String(),
    is_current: Type.Boolean(),
    used_bytes: Count,
    segments: Count,
  } satisfies Fields<VolumeInfo>,
  strict,
);
const ScrubSchema = Type.Object(
  {
    name: Type.String(),
    used_bytes: Count,
    pass: Count,
    is_running: Type.Boolean(),
    records: Count,
    bytes: Count,
    bad: Count,
    begun_s: Count,
    ended_s: Count,
    problem: Type.Optional(Type.String()),
    late: Type.Optional(Type.String()),
  } satisfies Fields<ScrubInfo>,
  strict,
);
const VolumesSchema = Type.Object(
  {
    volumes: Type.Array(VolumeSchema),
    scrubs: Type.Array(ScrubSchema),
    incomplete: Type.Optional(Type.String()),
    cache: Type.Object({ used_bytes: Count, bytes_max: Count }, strict),
  } satisfies Fields<VolumesAnswer>,
  strict,
);

const Name = Type.String({
  minLength: 1,
  maxLength: 1024,
  description: 'The directory of a volume, or its id.',
});
const Named = Type.Object({ volume: Name }, strict);
const Removal = Type.Object(
  { volume: Name, force: Type.Optional(Type.Union([Type.Literal('true'), Type.Literal('false')])) },
  strict,
);

export interface VolumeRoutesInit {
  readonly volumes: Volumes;
  readonly decisions: VolumeDecisions;
  readonly store: ObjectStore;
  readonly upkeep: Pick<Upkeep, 'scrubs'>;
}

export function volumeRoutes({ volumes, decisions, store, upkeep }: VolumeRoutesInit): Route[] {
  const admin = { scope: 'storage:admin', lane: 'inline', body: 'none' } as const;
  const response = { 200: VolumesSchema };
  const shown = (): VolumesAnswer => ({
    volumes: volumes.views,
    scrubs: upkeep.scrubs,
    ...(volumes.incomplete !== undefined && { incomplete: volumes.incomplete }),
    cache: { used_bytes: store.cache.bytes, bytes_max: store.cache.bytes_max },
  });
  const decides = (verb: VolumeVerb, summary: string, act: (name: string) => Promise<void>): Route =>
    route({
      ...admin,
      method: 'POST',
      path: `/admin/volumes/${verb}`,
      summary,
      schema: { query: Named, response },
      handler: async ({ query }) => {
        await act(query.volume);
        return json(200, shown());
      },
    });
  return [
    route({
      ...admin,
      method: 'GET',
      path: '/admin/volumes',
      summary: 'The volumes, their state and what they hold.',
      schema: { response },
      handler: () => json(200, shown()),
    }),
    decides('drain', 'Puts nothing new on a volume and moves what it has to others.', (name) => decisions.drain(name)),
    decides('undrain', 'Lets a volume stay that was to be emptied.', (name) => decisions.undrain(name)),
    decides('lose', 'Expects nothing of a volume any more: what it had is repaired from others.', (name) =>
      decisions.lose(name),
    ),
    decides(
      'restore',
      'Takes back a volume that was lost, an empty directory in its place, or one that was used apart from the others.',
      (name) => decisions.restore(name),
    ),
    route({
      ...admin,
      method: 'POST',
      path: '/admin/volumes/remove',
      summary:
        'Forgets a volume that is drained or lost; with force also one that may hold the last copy of something.',
      schema: { query: Removal, response },
      handler: async ({ query }) => {
        await decisions.remove(query.volume, query.force === 'true');
        return json(200, shown());
      },
    }),
  ];
}
