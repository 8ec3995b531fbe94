/** Process entry of kms. */
import { runProcess } from '@ron/service';
import { schema } from './config.ts';
import { startKms } from './service.ts';

await runProcess({ name: 'kms', schema, start: startKms });
