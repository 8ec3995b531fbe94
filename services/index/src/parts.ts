/** Opens the parts of index, in the order in which they depend on each other. */
import type { IndexContext } from './service.ts';

export async function openParts({ config, runtime, openAuth }: IndexContext) {
  // [index I-12] Without a directory nothing is written.
  const dir = config.amnesia.enabled ? undefined : config.data_dir!;
  await openAuth({ dir });
  const work = runtime.workQueue('work');
  return { dir, work };
}
