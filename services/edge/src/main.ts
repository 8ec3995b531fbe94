/** Process entry of edge. */
import { runService } from '@ron/service';
import { schema } from './config.ts';

await runService({ name: 'edge', config: schema, load: async () => (await import('./service.ts')).edge });
