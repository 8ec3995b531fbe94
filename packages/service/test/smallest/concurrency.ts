/** The tasks, channels, locks and deadlines of the smallest service. */
import {
  configChannel,
  declareConcurrency,
  eventChannel,
  EVENT_TASK,
  REVOCATION_TASK,
  SHELL_DEADLINES,
  SHELL_TASKS,
  shutdownChannel,
} from '@ron/service';

export const concurrency = declareConcurrency({
  service: 'index',
  channels: {
    events: eventChannel('pool'),
    shutdown: shutdownChannel('config_reloader'),
    // Another name than the default: `names` in service.ts maps it.
    cfg_watch: configChannel('pool', 'config_reloader'),
    work: { kind: 'work', capacity: 8, lanes: ['get'], from: 'listener', to: 'pool' },
  },
  tasks: {
    ...EVENT_TASK,
    // Without it, capabilities that passport issued get 503.
    ...REVOCATION_TASK,
    config_reloader: SHELL_TASKS.config_watch,
    key_refresh: SHELL_TASKS.key_refresh,
    pool: { count: 2, criticality: 'critical', does: 'answers requests' },
  },
  locks: {},
  deadlines: { ...SHELL_DEADLINES, get: { ms: 2000, covers: 'one greeting' } },
});
