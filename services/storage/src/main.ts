/** Process entry of storage. */
import { runProcess } from '@ron/kernel';
import { schema } from './config.ts';
import { startStorage } from './service.ts';

await runProcess({ name: 'storage', schema, start: startStorage });
