/** Process entry of interop. */
import { runService } from '@ron/service';
import { schema } from './config.ts';

await runService({ name: 'interop', config: schema, load: async () => (await import('./service.ts')).interop });
