/** Rows of `concurrency.ts` that the shell builds. A service spreads those that it has into its own declaration. */
import type { Concurrency } from '../runtime/declaration.ts';

export const SHELL_CHANNELS = {
  shutdown: { kind: 'watch', from: 'drain', to: 'config_watch and periodic tasks' },
  config: { kind: 'watch', from: 'config_watch', to: 'requests and tasks' },
} as const satisfies Concurrency['channels'];

/** For a service with domain events; they are written to the log. */
export const EVENT_CHANNEL = {
  events: { kind: 'broadcast', capacity: 1024, from: 'domain', to: 'event_log' },
} as const satisfies Concurrency['channels'];

export const SHELL_TASKS = {
  config_watch: { count: 1, criticality: 'important', does: 'applies each reloaded configuration' },
  key_refresh: { count: 1, criticality: 'important', does: 'polls kms for rotated and retired capability keys' },
} as const satisfies Concurrency['tasks'];

export const REVOCATION_TASK = {
  revocation_watch: { count: 1, criticality: 'important', does: 'polls passport for revocations' },
} as const satisfies Concurrency['tasks'];

export const EVENT_TASK = {
  event_log: { count: 1, criticality: 'important', does: 'writes domain events to the log' },
} as const satisfies Concurrency['tasks'];

export const SHELL_DEADLINES = {
  read: { ms: 5000, config_key: 'read_timeout', covers: 'a request body without progress' },
  write: { ms: 5000, config_key: 'write_timeout', covers: 'an answer whose client does not read' },
} as const satisfies Concurrency['deadlines'];
