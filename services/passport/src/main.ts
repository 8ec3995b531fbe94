/** Process entry of passport. */
import { runService } from '@ron/service';
import { schema } from './config.ts';

await runService({ name: 'passport', config: schema, load: async () => (await import('./service.ts')).passport });
