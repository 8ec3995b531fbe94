/** What an operator looks at and sets going. */
import type { ObjectStore, Volume } from '@ron/cas';
import { json, route, type Route } from '@ron/ingress';
import { RonError } from '@ron/kernel';
import { Type } from 'typebox';
import type { AdminTasks, TaskWork } from '../admin-tasks.ts';
import { strict } from './schemas.ts';

const VolumesSchema = Type.Object(
  {
    volumes: Type.Array(
      Type.Object(
        {
          name: Type.String(),
          domain: Type.String(),
          condition: Type.String(),
          reason: Type.String(),
          used_bytes: Type.Integer(),
          segments: Type.Integer(),
        },
        strict,
      ),
    ),
    cache: Type.Object({ used_bytes: Type.Integer(), bytes_max: Type.Integer() }, strict),
  },
  strict,
);

const TaskSchema = Type.Object(
  {
    id: Type.String(),
    kind: Type.String(),
    state: Type.String(),
    started_ms: Type.Integer(),
    ended_ms: Type.Optional(Type.Integer()),
    progress: Type.Record(Type.String(), Type.Unknown()),
    problem: Type.Optional(Type.String()),
  },
  strict,
);

export interface AdminRoutesInit {
  readonly volume: Volume;
  readonly store: ObjectStore;
  readonly tasks: AdminTasks;
  readonly compaction: TaskWork;
}

export function adminRoutes({ volume, store, tasks, compaction }: AdminRoutesInit): Route[] {
  // Never behind the work that an operator wants to look into.
  const admin = { scope: 'storage:admin', lane: 'inline', body: 'none' } as const;
  return [
    route({
      ...admin,
      method: 'POST',
      path: '/admin/compact',
      summary: 'Gives back the room of what nobody needs. One at a time: asked again it tells of the one under way.',
      schema: { response: { 202: TaskSchema } },
      handler: () => {
        const task = tasks.start('compact', compaction);
        return json(202, task, { Location: `/admin/tasks/${task.id}` });
      },
    }),
    route({
      ...admin,
      method: 'GET',
      path: '/admin/tasks',
      summary: 'The tasks of late, the newest first.',
      schema: { response: { 200: Type.Object({ tasks: Type.Array(TaskSchema) }, strict) } },
      handler: () => json(200, { tasks: tasks.list() }),
    }),
    route({
      ...admin,
      method: 'GET',
      path: '/admin/tasks/:id',
      summary: 'One task: how far it is, or how it ended.',
      schema: {
        params: Type.Object({ id: Type.String({ maxLength: 64 }) }, strict),
        response: { 200: TaskSchema },
      },
      handler: ({ params }) => {
        const task = tasks.get(params.id);
        if (task === undefined) throw new RonError('not_found', 'no such task, or it was long ago');
        return json(200, task);
      },
    }),
    route({
      ...admin,
      method: 'GET',
      path: '/admin/volumes',
      summary: 'The volumes, their state and what they hold.',
      schema: { response: { 200: VolumesSchema } },
      handler: () =>
        json(200, {
          volumes: [{ name: volume.name, domain: volume.domain, ...volume.state, ...volume.stats() }],
          cache: { used_bytes: store.cache.used_bytes, bytes_max: store.cache.bytes_max },
        }),
    }),
  ];
}
