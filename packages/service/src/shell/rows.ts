/** Rows of `concurrency.ts` that the shell builds. A service puts those that it has into its own declaration. */
import type { BroadcastChannel, Concurrency, WatchChannel } from '../runtime/declaration.ts';

/** Notifies the named tasks, separated by commas, that a drain has begun. */
export const shutdownChannel = (to: string): WatchChannel => ({ kind: 'watch', from: 'supervisor', to });

/** Carries the configuration in force to the named readers. */
export const configChannel = (to: string, from = 'config_watch'): WatchChannel => ({ kind: 'watch', from, to });

/** Carries domain events from the named senders to the log. */
export const eventChannel = (from: string): BroadcastChannel => ({
  kind: 'broadcast',
  capacity: 1024,
  from,
  to: 'event_log',
});

export const SHELL_TASKS = {
  config_watch: { count: 1, criticality: 'important', does: 'applies each reloaded configuration' },
  key_refresh: { count: 1, criticality: 'important', does: 'polls kms for rotated and retired capability keys' },
} as const satisfies Concurrency['tasks'];

/** For every service that checks capabilities, except passport. Without it, capabilities that passport issued get 503. */
export const REVOCATION_TASK = {
  revocation_watch: { count: 1, criticality: 'important', does: 'polls passport for revocations' },
} as const satisfies Concurrency['tasks'];

/** For a service with domain events. */
export const EVENT_TASK = {
  event_log: { count: 1, criticality: 'important', does: 'writes domain events to the log' },
} as const satisfies Concurrency['tasks'];

export const SHELL_DEADLINES = {
  read: { ms: 5000, config_key: 'read_timeout', covers: 'a request body without progress' },
  write: {
    ms: 5000,
    config_key: 'write_timeout',
    covers: 'an answer whose client acknowledges nothing; acknowledged bytes add time at `server.rate_min`',
  },
} as const satisfies Concurrency['deadlines'];
