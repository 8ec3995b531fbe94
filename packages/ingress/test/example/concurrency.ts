/** Everything that runs, waits or is shared in the example service. */
import { configChannel, declareConcurrency, SHELL_TASKS, shutdownChannel } from '@ron/service';

export const concurrency = declareConcurrency({
  service: 'notes',
  channels: {
    shutdown: shutdownChannel('config_watch'),
    config: configChannel('pool'),
    work: {
      kind: 'work',
      capacity: 64,
      config_key: 'notes.queue',
      lanes: ['get', 'put', { name: 'slow', key: 'address' }],
      from: 'listener',
      to: 'pool',
    },
  },
  tasks: {
    config_watch: SHELL_TASKS.config_watch,
    pool: {
      count: 4,
      config_key: 'notes.workers',
      criticality: 'critical',
      does: 'takes requests from the work queue',
    },
    ticker: { count: 1, criticality: 'critical', does: 'counts; crashes on request' },
  },
  locks: {
    shelf: { rank: 1, guards: 'the notes and the byte count of those in RAM' },
  },
  deadlines: {
    get: { ms: 2000, covers: 'a read up to its first byte' },
    slow: { ms: 30_000, covers: 'a request that is slow on purpose' },
  },
});
