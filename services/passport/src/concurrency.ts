/** Everything that runs, waits or is shared in passport. */
import { declareConcurrency } from '@ron/service';

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
    shutdown: { kind: 'watch', from: 'drain', to: 'config watch' },
    config: { kind: 'watch', from: 'config watch', to: 'issue, key refresh' },
  },
  tasks: {
    key_refresh: {
      count: 1,
      criticality: 'important',
      does: 'asks kms whether keys of capabilities were rotated or retired',
    },
    config_watch: { count: 1, criticality: 'important', does: 'applies each reloaded configuration' },
  },
  locks: {},
  deadlines: {
    issue: { ms: 2000, config_key: 'passport.issue_deadline', covers: 'issuing, verifying or revoking' },
    hold: { ms: 3000, covers: 'a question for revocations, which is held for a second at most' },
    read: { ms: 5000, config_key: 'read_timeout', covers: 'a request body' },
    write: { ms: 5000, config_key: 'write_timeout', covers: 'an answer whose client does not read' },
  },
});
