/** Everything that runs, waits or is shared in passport. */
import { declareConcurrency, SHELL_CHANNELS, SHELL_DEADLINES, SHELL_TASKS } from '@ron/service';

export const concurrency = declareConcurrency({
  service: 'passport',
  busy_labels: ['queue'],
  channels: {
    revocations: { kind: 'watch', from: 'revoke', to: 'held questions of services' },
    holds: {
      kind: 'own',
      capacity: 256,
      policy: 'reject new',
      overflow: 'answered at once with nothing new; the client polls again',
      metric: 'queue_rejected_total{queue}',
      from: 'services that poll revocations',
      to: 'the next revocation, or one second',
    },
    ...SHELL_CHANNELS,
  },
  tasks: SHELL_TASKS,
  locks: {},
  deadlines: {
    issue: { ms: 2000, config_key: 'passport.issue_deadline', covers: 'issuing, verifying or revoking' },
    hold: { ms: 3000, covers: 'a question for revocations, which is held for a second at most' },
    ...SHELL_DEADLINES,
  },
});
