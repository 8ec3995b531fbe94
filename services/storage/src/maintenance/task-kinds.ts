/** The tasks that an operator can start. */
import type { Compactor } from '@ron/cas';
import type { TaskWork } from '@ron/service';

/** The declared task that runs each kind. */
export const TASK_KINDS = { compact: 'compaction', repair: 'repair_run', scrub: 'scrub_run' } as const;

export function compactionOf({ compactor }: { readonly compactor: Compactor }): TaskWork {
  return { run: (signal) => compactor.run(signal), progress: () => ({ ...compactor.report }) };
}
