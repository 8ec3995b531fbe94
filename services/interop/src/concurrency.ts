/** The tasks, channels, locks and deadlines of interop. */
import {
  configChannel,
  declareConcurrency,
  EVENT_TASK,
  REVOCATION_TASK,
  SHELL_DEADLINES,
  SHELL_TASKS,
  shutdownChannel,
} from '@ron/service';
import { REJECT_REASONS } from '@ron/proto';

export const concurrency = declareConcurrency({
  service: 'interop',
  busy_labels: ['endpoint'],
  retry_labels: ['op', 'result'],
  reject_reasons: REJECT_REASONS,
  channels: {
    // [interop I-3] [interop I-9] The three lanes of `work` have queues of their own: no lane can take the room of another.
    reads: {
      kind: 'work',
      label: 'work',
      capacity: 128,
      config_key: 'interop.work',
      config_share: 0.25,
      lanes: ['read'],
      budget_ms: 2000,
      from: 'listener',
      to: 'read_pool',
    },
    forwarded_reads: {
      kind: 'own',
      capacity: 256,
      policy: 'reject new; half of them for one client address',
      overflow: '429 `busy` with `Retry-After`',
      metric: 'busy_rejections_total{endpoint}',
      from: 'read_pool',
      to: 'listener',
    },
    puts: {
      kind: 'work',
      label: 'work',
      capacity: 128,
      config_key: 'interop.work',
      config_share: 0.25,
      lanes: [{ name: 'put', key: 'address' }],
      budget_ms: 2000,
      from: 'listener',
      to: 'put_pool',
    },
    webhooks: {
      kind: 'work',
      label: 'work',
      capacity: 256,
      config_key: 'interop.work',
      config_share: 0.5,
      lanes: [{ name: 'webhook', key: 'provider' }],
      budget_ms: 2000,
      from: 'listener',
      to: 'sender',
    },
    audit: {
      kind: 'mpsc',
      capacity: 512,
      policy: 'drop oldest',
      overflow: 'the oldest audit event is lost and counted',
      metric: 'audit_drop_total',
      from: 'listener, audit_sink',
      to: 'audit_sink',
    },
    events: {
      kind: 'broadcast',
      capacity: 1024,
      // More than `server.events_max` allows streams, which then answers 429.
      subscribers_max: 4096,
      config_key: 'interop.broadcast',
      from: 'listener, sender, audit_sink, spool_drainer, receipt_signer, brownout_sentinel, secret_refresh',
      to: 'event_log, listener',
    },
    config: configChannel('listener, sender, key_refresh'),
    shutdown: shutdownChannel(
      'read_pool, put_pool, sender, audit_sink, brownout_sentinel, spool_drainer, receipt_signer, secret_refresh, config_watch',
    ),
  },
  tasks: {
    read_pool: {
      count: 64,
      config_key: 'interop.read_workers',
      criticality: 'critical',
      does: 'reads objects from storage for `GET /o/{addr}`',
    },
    put_pool: {
      count: 128,
      config_key: 'interop.put_workers',
      criticality: 'critical',
      does: 'exchanges the capability of the client, then stores the body in storage',
    },
    sender: {
      count: 1,
      criticality: 'critical',
      does: 'sends verified webhooks to mailbox in batches, or to the spool, then their receipts to the receipt log',
    },
    audit_sink: {
      count: 1,
      criticality: 'important',
      does: 'writes audit events to `audit.sink`, and records the sums of refusals each second',
    },
    brownout_sentinel: {
      count: 1,
      criticality: 'important',
      does: 'evaluates errors and latency of storage, mailbox and passport each second, and probes them in a brownout',
    },
    spool_drainer: {
      count: 1,
      criticality: 'critical',
      does: 'sends spooled webhooks to mailbox, in order for each provider',
    },
    receipt_signer: {
      count: 1,
      criticality: 'important',
      does: 'builds a tree over up to 128 receipts, or those of 250 ms, and has kms sign its root',
    },
    secret_refresh: { count: 1, criticality: 'important', does: 'unwraps secrets that kms could not unwrap before' },
    ...EVENT_TASK,
    ...REVOCATION_TASK,
    ...SHELL_TASKS,
  },
  // [interop I-1] [interop I-2] Sections are synchronous and nest in this order; requests read snapshots.
  locks: {
    policy_meta: { rank: 1, guards: 'descriptors of providers with their topics, and the brownout mode' },
    routing_table: { rank: 2, guards: 'live secrets of providers, and why one is closed' },
    counters: { rank: 3, guards: 'sums of refusals until the audit event of their second is written' },
  },
  deadlines: {
    intake: {
      ms: 7000,
      covers: 'a webhook with its body, which has no time of its own; `request` bounds the rest as well',
    },
    request: { ms: 2000, covers: 'a request, from its last byte to its answer' },
    mailbox: { ms: 1000, covers: 'one batch of messages to mailbox' },
    passport: { ms: 500, covers: 'the exchange of a capability' },
    kms: { ms: 2000, covers: 'a call to kms: wrap, unwrap, sign' },
    provider: { ms: 5000, covers: 'a change of a provider: its wait, its calls to kms, its write' },
    connect: { ms: 250, covers: 'a connection to an upstream' },
    probe: { ms: 1000, covers: 'a probe of an upstream in a brownout' },
    ...SHELL_DEADLINES,
  },
  breakers: {
    upstreams: {
      error_window_ms: 10_000,
      trip_threshold: 0.5,
      calls_min: 5,
      cooldown_ms: 2000,
      half_open_probes: 1,
      guards: 'calls to storage, mailbox, passport or kms',
    },
  },
  retries: {
    exchange: { policy: 'rpc', idempotent_because: 'a second exchange issues a second token with the same limits' },
    deliver: { policy: 'rpc', idempotent_because: 'every message has an idempotency key' },
  },
  actors: {
    mailbox: 'the durable queue',
    storage: 'the object store',
    passport: 'exchanges capabilities',
    receipts: 'the receipt log; one sync for many receipts',
  },
  requests: {
    'POST /webhooks/{provider}': {
      queue: 'webhooks',
      deadline: 'request',
      steps: [
        ['sender', 'mailbox', 'up to 128 messages'],
        ['mailbox', 'sender', 'synced'],
        ['sender', 'receipts', 'receipts'],
        ['receipts', 'sender', 'synced'],
      ],
      answer: '202 with the id of the receipt',
    },
    'POST /put': {
      queue: 'puts',
      deadline: 'request',
      steps: [
        ['put_pool', 'passport', 'exchange'],
        ['passport', 'put_pool', 'storage token, 60 s'],
        ['put_pool', 'storage', 'body in chunks of 64 KiB'],
        ['storage', 'put_pool', '201 with a receipt'],
      ],
      answer: '201 with the receipt of storage',
    },
  },
  drain: {
    finishes: 'accepted webhooks and `/put` bodies within `drain_deadline`',
    flushes: 'audit events',
    closes: ['connections of the bridge', 'providers', 'receipt log', 'spool', 'audit log', 'capability keys'],
  },
});
