/** Process entry of the example service. */
import { runProcess } from '@ron/service';
import { schema } from './config.ts';
import { startNotes } from './service.ts';

await runProcess({ name: 'notes', schema, start: startNotes });
