/** Handlers for operators: tasks and the state of repair. */
import { json, type RouteAnswer } from '@ron/ingress';
import { RonError } from '@ron/kernel';
import type { TaskKind } from '@ron/proto';
import type { AdminTasks, TaskWork } from '../maintenance/admin-tasks.ts';
import type { Maintenance } from '../maintenance/maintenance.ts';

export interface AdminInit {
  readonly tasks: AdminTasks<TaskKind>;
  readonly maintenance: Pick<Maintenance, 'repair' | 'scrub' | 'status'>;
}

export function adminHandlers({ tasks, maintenance }: AdminInit) {
  return {
    /** Starts the work, or joins a run of it. */
    starts: (kind: TaskKind, work: TaskWork) => (): RouteAnswer => {
      const task = tasks.start(kind, work);
      return json(202, task, { Location: `/admin/tasks/${task.id}` });
    },
    repairStatus: (): RouteAnswer => json(200, maintenance.status),
    tasks: (): RouteAnswer => json(200, { tasks: tasks.list() }),
    task: ({ params }: { readonly params: { readonly id: string } }): RouteAnswer => {
      const task = tasks.get(params.id);
      if (task === undefined) throw new RonError('not_found', 'task not found: it is unknown or too old');
      return json(200, task);
    },
  };
}
