/** Answers and schemas of the routes that start and show tasks: `POST /admin/KIND`, `GET /admin/tasks[/:id]`. */
import { json, Type, type JsonSchema, type RouteAnswer } from '@ron/ingress';
import { RonError } from '@ron/kernel';
import type { Task } from '@ron/proto';
import type { AdminTasks, TaskWork } from './admin-tasks.ts';

const strict = { additionalProperties: false } as const;

export const TaskIdSchema = Type.Object({ id: Type.String({ maxLength: 64 }) }, strict);
export const TaskSchema = Type.Object(
  {
    id: Type.String(),
    kind: Type.String(),
    state: Type.String(),
    started_ms: Type.Integer(),
    ended_ms: Type.Optional(Type.Integer()),
    progress: Type.Record(Type.Unknown()),
    problem: Type.Optional(Type.String()),
  } satisfies Record<keyof Task, JsonSchema>,
  strict,
);
export const TasksSchema = Type.Object({ tasks: Type.Array(TaskSchema) }, strict);

export function taskAnswers<K extends string>(tasks: AdminTasks<K>) {
  return {
    /** Starts the work, or joins a run of it. */
    starts: (kind: K, work: TaskWork) => (): RouteAnswer => {
      const task = tasks.start(kind, work);
      return json(202, task, { Location: `/admin/tasks/${task.id}` });
    },
    tasks: (): RouteAnswer => json(200, { tasks: tasks.list() }),
    task: ({ params }: { readonly params: { readonly id: string } }): RouteAnswer => {
      const task = tasks.get(params.id);
      if (task === undefined) throw new RonError('not_found', 'task not found: it is unknown or too old');
      return json(200, task);
    },
  };
}
