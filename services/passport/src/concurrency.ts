/** The tasks, channels, locks and deadlines of passport. */
import { configChannel, declareConcurrency, SHELL_DEADLINES, SHELL_TASKS, shutdownChannel } from '@ron/service';

export const concurrency = declareConcurrency({
  service: 'passport',
  busy_labels: ['queue'],
  channels: {
    revocations: { kind: 'watch', from: 'listener', to: 'polling_services' },
    holds: {
      kind: 'own',
      capacity: 256,
      policy: 'reject new',
      overflow: 'responds immediately without news; the client polls again',
      metric: 'queue_rejected_total{queue}',
      from: 'polling_services',
      to: 'listener',
    },
    shutdown: shutdownChannel('config_watch'),
    config: configChannel('listener, key_refresh'),
  },
  tasks: {
    entry_sender: {
      count: 1,
      criticality: 'important',
      does: 'sends the entries of revocations to the audit log of kms, in order, until it has them',
    },
    ...SHELL_TASKS,
  },
  locks: {},
  deadlines: {
    issue: { ms: 2000, config_key: 'passport.issue_deadline', covers: 'issuing, verifying or revoking' },
    hold: { ms: 3000, covers: 'a poll for revocations, which is held for at most a second' },
    ...SHELL_DEADLINES,
  },
  actors: {
    polling_services: 'services that poll for revocations, each held for at most a second',
    kms: 'derives audience keys and keeps the audit log',
  },
  requests: {
    'POST /v1/passport/issue': {
      deadline: 'issue',
      steps: [
        ['listener', 'kms', 'derive the audience key, unless it is cached'],
        ['kms', 'listener', 'key'],
        ['listener', 'kms', 'entry of the audit log'],
        ['kms', 'listener', 'index of the entry'],
      ],
      answer: '201 with a capability',
    },
  },
  drain: { closes: ['revocations', 'capability keys'] },
});
