/** Handlers for operators: pins, reindex and its task. */
import { empty, Type, type RouteAnswer, type RouteContext } from '@ron/ingress';
import { RonError } from '@ron/kernel';
import { checkTarget, type TargetResult } from '@ron/proto';
import { taskAnswers, type AdminTasks, type TaskWork } from '@ron/service';
import type { Caller, Names } from '../publish/names.ts';
import type { IndexStore } from '../store/index-store.ts';

export interface AdminInit {
  readonly tasks: AdminTasks<'reindex'>;
  readonly names: Pick<Names, 'setPin' | 'recordAdmin'>;
  readonly store: Pick<IndexStore, 'newEpoch'>;
  /** Pinned keys stay cached; changes outdate answers and running lookups. */
  readonly cache: {
    setPinned(target: string, isPinned: boolean): void;
    invalidate(targets: Iterable<string>): void;
    clear(): void;
  };
}

/** A name with its key is the longest target. */
const TARGET_CHARS_MAX = 'name:'.length + 255 + 1 + 64;

export const PinSchema = Type.Object(
  { key: Type.String({ maxLength: TARGET_CHARS_MAX, description: 'b3:<hex>, name:<label> or name:<label>@<key>' }) },
  { additionalProperties: false },
);

type PinContext = Pick<RouteContext, 'grant' | 'deadline'> & { readonly body: { readonly key: string } };

export function adminHandlers(init: AdminInit) {
  const { tasks, names, cache } = init;
  const answers = taskAnswers(tasks);
  return {
    pins:
      (isPinned: boolean) =>
      async ({ body, grant, deadline }: PinContext): Promise<RouteAnswer> => {
        const target = requireTarget(body.key, checkTarget(body.key));
        await names.setPin(target, isPinned, callerOf(grant), deadline.signal);
        cache.setPinned(target, isPinned);
        cache.invalidate([target]);
        return empty(204);
      },
    reindex: async ({ grant, deadline }: Pick<RouteContext, 'grant' | 'deadline'>): Promise<RouteAnswer> => {
      await names.recordAdmin('reindex', callerOf(grant), deadline.signal);
      // Before the answer: later callers start new lookups.
      cache.clear();
      return answers.starts('reindex', reindexOf(init))();
    },
    task: answers.task,
    tasks: answers.tasks,
  };
}

/** Begins a new epoch, so that storage announces everything, and empties the cache. */
function reindexOf({ store, cache }: AdminInit): TaskWork {
  let epoch: string | undefined;
  return {
    async run() {
      epoch = await store.newEpoch();
      cache.clear();
    },
    progress: () => (epoch === undefined ? {} : { epoch }),
  };
}

function requireTarget(key: string, result: TargetResult): string {
  if (!result.ok) throw new RonError('validation', result.problem);
  return key;
}

export function callerOf(grant: RouteContext['grant']): Caller {
  const { subject, capability_id } = grant!;
  return { subject, capability_id };
}
