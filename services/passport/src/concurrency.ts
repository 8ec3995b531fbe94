/** The tasks, channels, locks and deadlines of passport. */
import { declareConcurrency } from '@ron/kernel';

export const concurrency = declareConcurrency({
  service: 'passport',
  busy_labels: ['queue'],
  channels: {
    revocations: { kind: 'watch', from: 'listener', to: 'polling_services' },
    holds: {
      kind: 'own',
      capacity: 256,
      policy: 'reject new',
      overflow: 'answered at once with nothing new; the client polls again',
      metric: 'queue_rejected_total{queue}',
      from: 'polling_services',
      to: 'listener',
    },
    shutdown: { kind: 'watch', from: 'supervisor', to: 'config_watch' },
    config: { kind: 'watch', from: 'config_watch', to: 'listener, key_refresh' },
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
    write: { ms: 5000, config_key: 'write_timeout', covers: 'an answer whose client does not read' },
  },
  actors: {
    polling_services: 'services that poll for revocations, each held for at most a second',
    kms: 'derives audience keys',
  },
  requests: {
    'POST /v1/passport/issue': {
      deadline: 'issue',
      steps: [
        ['listener', 'kms', 'derive the audience key, unless it is cached'],
        ['kms', 'listener', 'key'],
      ],
      answer: '201 with a capability',
    },
  },
  drain: { closes: ['capability keys', 'revocations'] },
});
