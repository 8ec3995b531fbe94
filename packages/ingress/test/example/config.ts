/** The configuration of the example service: the listener's keys, the process's keys and a few of its own. */
import { defineConfig, key } from '@ron/config';
import { PROCESS_KEYS } from '@ron/service';
import type { ConfigOf } from '@ron/config';
import { checkIngressKeys, INGRESS_KEYS } from '@ron/ingress';

export const schema = defineConfig(
  {
    ...PROCESS_KEYS,
    ...INGRESS_KEYS,
    'notes.greeting': key.text({ default: 'hello', length_max: 100, doc: 'What /greeting says.', reloadable: true }),
    'notes.workers': key.integer({ default: 4, min: 1, max: 64, doc: 'Workers of the pool.' }),
    'notes.queue': key.integer({ default: 64, min: 1, max: 4096, doc: 'Requests that may wait for a worker.' }),
    'notes.ram_bytes': key.size({ default: '1MiB', doc: 'Notes kept in RAM; 0 disables the fast path.' }),
    'notes.key_hex': key.optional(
      key.text({ pattern: /^[0-9a-f]{64}$/, expects: '64 hex digits', secret: true, doc: 'Root key of capabilities.' }),
    ),
  },
  checkIngressKeys,
);

export type NotesConfig = ConfigOf<typeof schema>;
