/** The tasks, channels, locks and deadlines of kms. */
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
      to: 'signer_pool',
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
      to: 'verify_threads',
    },
    audit: {
      kind: 'mpsc',
      capacity: 2048,
      config_key: 'audit.queue',
      policy: 'wait, then drop oldest',
      overflow: 'after 200 ms: `continue` drops the oldest event, `strict` responds 503; both are recorded as a gap',
      metric: 'audit_dropped_total',
      from: 'listener',
      to: 'audit_appender',
    },
    checkpoint_due: {
      kind: 'mpsc',
      capacity: 1,
      policy: 'reject new',
      overflow: 'a checkpoint is already due',
      metric: 'queue_rejected_total{queue}',
      from: 'audit_appender, listener',
      to: 'audit_checkpointer',
    },
    checkpoint: { kind: 'watch', from: 'audit_checkpointer', to: 'witness_client, listener' },
    events: eventChannel('listener, backend_keeper, audit_appender, audit_checkpointer'),
    shutdown: shutdownChannel('backend_keeper, attestation_refresher, config_watch'),
    config: configChannel('listener, backend_keeper, attestation_refresher, audit_checkpointer, key_refresh'),
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
    ...EVENT_TASK,
    ...REVOCATION_TASK,
    ...SHELL_TASKS,
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
    prune: { ms: 60_000, covers: 'the entry, the checkpoint and the removal of a pruning' },
    attest: { ms: 3000, covers: 'one refresh of the attestation' },
    keep: { ms: 2000, covers: 'one probe of the backend' },
    ...SHELL_DEADLINES,
  },
  retries: {
    unwrap: { policy: 'kms', idempotent_because: 'it changes nothing' },
    derive: { policy: 'kms', idempotent_because: 'the same label gives the same secret' },
    keep: { policy: 'kms', idempotent_because: 'open sessions are left unchanged' },
  },
  actors: {
    verify_threads: 'threads that verify signatures',
    backend: 'file, PKCS#11 token, TPM or cloud KMS',
  },
  requests: {
    'POST /v1/kms/sign': {
      queue: 'work_sign',
      deadline: 'sign',
      steps: [
        ['signer_pool', 'backend', 'sign the batch'],
        ['backend', 'signer_pool', 'signatures'],
        ['signer_pool', 'listener', 'signatures'],
        ['listener', 'audit_appender', 'audit entry'],
        ['audit_appender', 'listener', 'index of the entry'],
      ],
      answer: '200 with the signatures and the log index',
    },
  },
  drain: {
    flushes: 'last audit entries and checkpoint',
    closes: ['verify threads', 'vault', 'capability keys'],
  },
});
