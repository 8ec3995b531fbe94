/** Process entry of passport. */
import { runProcess } from '@ron/service';
import { schema } from './config.ts';
import { startPassport } from './service.ts';

await runProcess({ name: 'passport', schema, start: startPassport });
