/** The channels, tasks, deadlines and retries of kms. */
import { declareConcurrency } from '@ron/kernel';

export const concurrency = declareConcurrency({
  service: 'kms',
  restarts: { max: 10, window_ms: 60_000 },
  busy_labels: ['queue'],
  channels: {
    work_sign: {
      kind: 'own',
      label: 'sign',
      capacity: 512,
      config_key: 'kms.work_sign',
      policy: 'batches, fair by tenant, reject new',
      overflow:
        '429 `busy` with `Retry-After`; a tenant with fewer waiting requests displaces the newest request of the longest queue',
      metric: 'busy_rejections_total{queue="sign"}',
      from: 'listener',
      to: 'signer pool',
    },
    work_verify: {
      kind: 'own',
      label: 'verify',
      capacity: 512,
      policy: 'fair by tenant, reject new',
      overflow:
        '429 `busy` with `Retry-After`; a tenant with fewer waiting requests displaces the newest request of the longest queue',
      metric: 'busy_rejections_total{queue="verify"}',
      from: 'listener',
      to: 'verification threads',
    },
    audit: {
      kind: 'mpsc',
      capacity: 2048,
      config_key: 'audit.queue',
      policy: 'wait, then drop oldest',
      overflow: 'after 200 ms: `continue` drops the oldest event, `strict` responds 503; both are recorded as a gap',
      metric: 'audit_dropped_total',
      from: 'every operation',
      to: 'audit appender',
    },
    checkpoint_due: {
      kind: 'mpsc',
      capacity: 1,
      policy: 'reject new',
      overflow: 'a checkpoint is already due',
      metric: 'queue_rejected_total{queue}',
      from: 'audit appender, requests that wait for a proof',
      to: 'audit checkpointer',
    },
    checkpoint: { kind: 'watch', from: 'audit checkpointer', to: 'witness client, requests that wait for a proof' },
    events: { kind: 'broadcast', capacity: 1024, from: 'keys, backend, audit', to: 'log' },
    shutdown: { kind: 'watch', from: 'drain', to: 'backend keeper, attestation refresher' },
    config: { kind: 'watch', from: 'config watch', to: 'every operation' },
  },
  tasks: {
    signer_pool: {
      count: 4,
      config_key: 'kms.signers',
      criticality: 'critical',
      does: 'runs sign, wrap, unwrap, derive, create and rotate on the backend; signatures in batches',
    },
    audit_appender: {
      count: 1,
      criticality: 'critical',
      does: 'appends events to the audit log in batches, with one sync each',
    },
    audit_checkpointer: {
      count: 1,
      criticality: 'critical',
      does: 'signs a checkpoint every audit.checkpoint_ops entries or audit.checkpoint_interval',
    },
    witness_client: {
      count: 1,
      criticality: 'important',
      does: 'submits each checkpoint to the witness, if one is configured',
    },
    attestation_refresher: { count: 1, criticality: 'important', does: 'refreshes the attestation of the backend' },
    backend_keeper: {
      count: 1,
      criticality: 'important',
      does: 'probes the backend and reopens its sessions, with jittered backoff',
    },
    config_watch: { count: 1, criticality: 'important', does: 'applies a reloaded configuration' },
    key_refresh: {
      count: 1,
      criticality: 'important',
      does: 'polls for rotated and retired capability keys',
    },
    revocation_watch: { count: 1, criticality: 'important', does: 'polls passport for revocations' },
    event_log: { count: 1, criticality: 'important', does: 'logs events of keys, backend and audit' },
  },
  locks: {},
  deadlines: {
    sign: {
      ms: 2000,
      config_key: 'kms.sign_deadline',
      covers: 'an operation with a private key, from request to response',
    },
    verify: { ms: 2000, covers: 'a verification, and reads of keys' },
    audit: { ms: 200, covers: 'one append to the audit log, before operations continue without it' },
    checkpoint: { ms: 1000, config_key: 'audit.checkpoint_deadline', covers: 'one signed checkpoint' },
    attest: { ms: 3000, covers: 'one refresh of the attestation' },
    keep: { ms: 2000, covers: 'one probe of the backend' },
    read: { ms: 5000, config_key: 'read_timeout', covers: 'a request body' },
    write: { ms: 5000, config_key: 'write_timeout', covers: 'a response whose client does not read' },
  },
  retries: {
    unwrap: { policy: 'kms', idempotent_because: 'it changes nothing' },
    derive: { policy: 'kms', idempotent_because: 'the same label gives the same secret' },
    keep: { policy: 'kms', idempotent_because: 'open sessions are left unchanged' },
  },
});
