/** Handlers for operators: tasks and the state of repair. */
import { json, type RouteAnswer } from '@ron/ingress';
import type { TaskKind } from '@ron/proto';
import { taskAnswers, type AdminTasks } from '@ron/service';
import type { Maintenance } from '../maintenance/maintenance.ts';

export interface AdminInit {
  readonly tasks: AdminTasks<TaskKind>;
  readonly maintenance: Pick<Maintenance, 'repair' | 'scrub' | 'status'>;
}

export function adminHandlers({ tasks, maintenance }: AdminInit) {
  return {
    ...taskAnswers(tasks),
    repairStatus: (): RouteAnswer => json(200, maintenance.status),
  };
}
