/** The tasks, channels, locks and deadlines of mailbox. */
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
  service: 'mailbox',
  busy_labels: ['queue', 'lane'],
  channels: {
    // [mailbox I-11] `send` and `settle` are the two lanes of `work`: neither can take the room of the other.
    send: {
      kind: 'work',
      label: 'work',
      capacity: 256,
      lanes: [{ name: 'send', key: 'topic' }],
      budget_ms: 2000,
      from: 'listener',
      to: 'send_pool',
    },
    settle: {
      kind: 'work',
      label: 'work',
      capacity: 256,
      lanes: [{ name: 'settle', key: 'topic' }],
      budget_ms: 2000,
      from: 'listener',
      to: 'settle_pool',
    },
    holds: {
      kind: 'own',
      capacity: 256,
      config_key: 'mailbox.holds_max',
      policy: 'reject new',
      overflow: '429 `busy` with `Retry-After`',
      metric: 'busy_rejections_total{queue="holds",lane="holds"}',
      from: 'listener',
      to: 'lease_clock, send_pool, settle_pool',
    },
    events: eventChannel('send_pool, settle_pool, lease_clock, compactor, retention'),
    config: configChannel('listener, retention, key_refresh'),
    shutdown: shutdownChannel('send_pool, settle_pool, lease_clock, compactor, retention, config_watch'),
  },
  tasks: {
    send_pool: {
      count: 64,
      config_key: 'mailbox.send_workers',
      criticality: 'critical',
      does: 'stores messages: idempotency keys, limits, one sync for all waiting sends',
    },
    settle_pool: {
      count: 64,
      config_key: 'mailbox.settle_workers',
      criticality: 'critical',
      does: 'leases, acknowledges, returns and extends messages',
    },
    lease_clock: {
      count: 1,
      criticality: 'critical',
      does: 'ends delays and leases: the message becomes visible again, or a dead letter',
    },
    compactor: {
      count: 1,
      criticality: 'important',
      does: 'moves live messages out of the oldest segment, then removes it',
    },
    retention: {
      count: 1,
      criticality: 'important',
      does: 'turns messages older than max_age into dead letters, and drops dead letters beyond their limits',
    },
    prove: { count: 0, criticality: 'optional', does: 'verifies the log and the ledger from disk, one run at a time' },
    ...EVENT_TASK,
    ...REVOCATION_TASK,
    ...SHELL_TASKS,
  },
  locks: {},
  deadlines: {
    send: { ms: 2000, covers: 'a send, from request to answer' },
    settle: { ms: 2000, covers: 'a receive without its wait, an ack, nack or extend; all other requests' },
    hold: { ms: 25_000, covers: 'a receive with its wait' },
    ...SHELL_DEADLINES,
  },
  actors: {
    log: 'the segment log: one write and one sync for all waiting appends',
  },
  requests: {
    'POST /v1/mailbox/{topic}': {
      queue: 'send',
      deadline: 'send',
      steps: [
        ['send_pool', 'log', 'message'],
        ['log', 'send_pool', 'synced'],
      ],
      answer: '201 with id and sequence number',
    },
    'POST /v1/mailbox/{topic}/receive': {
      queue: 'settle',
      deadline: 'hold',
      steps: [
        ['settle_pool', 'log', 'lease, not synced'],
        ['log', 'settle_pool', 'written'],
      ],
      answer: '200 with messages and their tokens',
    },
  },
  drain: { closes: ['log', 'capability keys'] },
});
