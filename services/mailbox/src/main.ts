/** Process entry of mailbox. */
import { runService } from '@ron/service';
import { schema } from './config.ts';

await runService({ name: 'mailbox', config: schema, load: async () => (await import('./service.ts')).mailbox });
