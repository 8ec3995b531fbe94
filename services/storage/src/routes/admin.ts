/** What an operator looks at and sets going. */
import { json, route, type Route } from '@ron/ingress';
import { RonError } from '@ron/kernel';
import type { RepairStatus, Task, TaskKind } from '@ron/proto';
import { Type } from 'typebox';
import type { AdminTasks, TaskWork } from '../upkeep/admin-tasks.ts';
import type { Upkeep } from '../upkeep/upkeep.ts';
import { strict, type Fields } from './schemas.ts';

const TaskSchema = Type.Object(
  {
    id: Type.String(),
    kind: Type.String(),
    state: Type.String(),
    started_ms: Type.Integer(),
    ended_ms: Type.Optional(Type.Integer()),
    progress: Type.Record(Type.String(), Type.Unknown()),
    problem: Type.Optional(Type.String()),
  } satisfies Fields<Task>,
  strict,
);

const Count = Type.Integer();
const RepairSchema = Type.Object(
  {
    target: Count,
    observed: Count,
    deficit: Count,
    deficit_by_class: Type.Object({ last: Count, rf: Count, parity: Count }, strict),
    crowded: Count,
    broken: Type.Optional(Count),
    records: Count,
    is_complete: Type.Boolean(),
    is_planning: Type.Boolean(),
    planned_ms: Type.Optional(Count),
    unreadable: Type.Array(Type.String()),
    problems: Type.Array(Type.String()),
    queued: Count,
    inflight: Count,
    skipped_total: Count,
    results: Type.Object({ repaired: Count, whole: Count, gone: Count, failed: Count }, strict),
    bytes_total: Count,
    rate_bytes_per_s: Type.Number(),
    allowed_bytes_per_s: Type.Number(),
    stripes: Type.Optional(
      Type.Object(
        { objects: Count, stripes: Count, failed: Count, lone: Count, problem: Type.Optional(Type.String()) },
        strict,
      ),
    ),
  } satisfies Fields<RepairStatus>,
  strict,
);

export interface AdminRoutesInit {
  readonly tasks: AdminTasks<TaskKind>;
  readonly compaction: TaskWork;
  readonly upkeep: Pick<Upkeep, 'repair' | 'scrub' | 'status' | 'wake'>;
}

// Never behind the work that an operator wants to look into.
const admin = { scope: 'storage:admin', lane: 'inline', body: 'none' } as const;

export function adminRoutes({ tasks, compaction, upkeep }: AdminRoutesInit): Route[] {
  return [
    starts(tasks, 'compact', compaction, 'Reclaims space.'),
    starts(tasks, 'repair', upkeep.repair, 'Looks what is missing on which volume and repairs it.'),
    starts(tasks, 'scrub', upkeep.scrub, 'Reads every byte of every volume and has mended what is damaged.'),
    route({
      ...admin,
      method: 'GET',
      path: '/admin/repair',
      summary: 'What is missing, what is being repaired, and how fast.',
      schema: { response: { 200: RepairSchema } },
      handler: () => json(200, upkeep.status),
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
  ];
}

function starts(tasks: AdminTasks<TaskKind>, kind: TaskKind, work: TaskWork, summary: string): Route {
  return route({
    ...admin,
    method: 'POST',
    path: `/admin/${kind}`,
    summary: `${summary} One at a time: asked again it tells of the one under way.`,
    schema: { response: { 202: TaskSchema } },
    handler: () => {
      const task = tasks.start(kind, work);
      return json(202, task, { Location: `/admin/tasks/${task.id}` });
    },
  });
}
