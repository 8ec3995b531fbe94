/** Process entry of kms. */
import { runService } from '@ron/service';
import { schema } from './config.ts';

await runService({ name: 'kms', config: schema, load: async () => (await import('./service.ts')).kms });
