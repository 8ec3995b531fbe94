/** The channels, tasks and deadlines of passport. */
import { declareConcurrency } from '@ron/kernel';

export const concurrency = declareConcurrency({
  service: 'passport',
  busy_labels: ['queue'],
  channels: {
    revocations: { kind: 'watch', from: 'revoke', to: 'held polls of services' },
    holds: {
      kind: 'own',
      capacity: 256,
      policy: 'reject new',
      overflow: 'responds immediately without news; the client polls again',
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
      does: 'polls kms for rotated and retired capability keys',
    },
    config_watch: { count: 1, criticality: 'important', does: 'applies each reloaded configuration' },
  },
  locks: {},
  deadlines: {
    issue: { ms: 2000, config_key: 'passport.issue_deadline', covers: 'issuing, verifying or revoking' },
    hold: { ms: 3000, covers: 'a poll for revocations, which is held for at most a second' },
    read: { ms: 5000, config_key: 'read_timeout', covers: 'a request body' },
    write: { ms: 5000, config_key: 'write_timeout', covers: 'a response whose client does not read' },
  },
});
