/** Process entry of storage. */
import { runService } from '@ron/service';
import { schema } from './config.ts';
import { sizeThreadPool } from './volumes/disk-share.ts';

await runService({
  name: 'storage',
  config: schema,
  // Before the first file call: the size of the thread pool is fixed from then on.
  prepare: ({ data_dirs }) => sizeThreadPool(data_dirs.length),
  load: async () => (await import('./service.ts')).storage,
});
