/** Process entry of the example service. */
import { runService } from '@ron/service';
import { schema } from './config.ts';

await runService({ name: 'notes', config: schema, load: async () => (await import('./service.ts')).notes });
