/** Process entry of storage. */
import { runProcess } from '@ron/service';
import { schema } from './config.ts';
import { sizeThreadPool } from './volumes/disk-share.ts';

await runProcess({
  name: 'storage',
  schema,
  start: async (context) => {
    // What the service is made of uses threads as soon as it is loaded.
    sizeThreadPool(context.config.data_dirs.length);
    const { startStorage } = await import('./service.ts');
    return await startStorage(context);
  },
});
