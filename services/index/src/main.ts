/** Process entry of index. */
import { runService } from '@ron/service';
import { schema } from './config.ts';

await runService({ name: 'index', config: schema, load: async () => (await import('./service.ts')).index });
