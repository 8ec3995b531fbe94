/** Everything that runs, waits or is shared in kms. */
import { declareConcurrency } from '@ron/service';

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
        '429 `busy` with `Retry-After`; a tenant with fewer waiting requests displaces the newest of the longest',
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
        '429 `busy` with `Retry-After`; a tenant with fewer waiting requests displaces the newest of the longest',
      metric: 'busy_rejections_total{queue="verify"}',
      from: 'listener',
      to: 'threads that check signatures',
    },
    audit: {
      kind: 'mpsc',
      capacity: 2048,
      config_key: 'audit.queue',
      policy: 'wait, then drop oldest',
      overflow: 'after 200 ms: `continue` drops the oldest event, `strict` answers 503; either is counted in a gap',
      metric: 'audit_dropped_total',
      from: 'every operation',
      to: 'audit appender',
    },
    checkpoint_due: {
      kind: 'mpsc',
      capacity: 1,
      policy: 'reject new',
      overflow: 'one is due already',
      metric: 'queue_rejected_total{queue}',
      from: 'audit appender, those who wait for a proof',
      to: 'audit checkpointer',
    },
    checkpoint: { kind: 'watch', from: 'audit checkpointer', to: 'witness client, those who wait for a proof' },
    events: { kind: 'broadcast', capacity: 1024, from: 'keys, backend, audit', to: 'log' },
    shutdown: { kind: 'watch', from: 'drain', to: 'backend keeper, attestation refresher' },
    config: { kind: 'watch', from: 'config watch', to: 'every operation' },
  },
  tasks: {
    signer_pool: {
      count: 4,
      config_key: 'kms.signers',
      criticality: 'critical',
      does: 'signs, wraps, unwraps, derives, creates and rotates with the backend, many signatures at a time',
    },
    audit_appender: { count: 1, criticality: 'critical', does: 'writes events to the audit log, one sync for many' },
    audit_checkpointer: {
      count: 1,
      criticality: 'critical',
      does: 'signs the log every audit.checkpoint_ops entries or audit.checkpoint_interval',
    },
    witness_client: {
      count: 1,
      criticality: 'important',
      does: 'shows each checkpoint to the witness, if there is one',
    },
    attestation_refresher: { count: 1, criticality: 'important', does: 'renews what the backend attests about itself' },
    backend_keeper: {
      count: 1,
      criticality: 'important',
      does: 'looks after the sessions of the backend and brings them back, with jittered backoff',
    },
    config_watch: { count: 1, criticality: 'important', does: 'puts a reloaded configuration in force' },
    key_refresh: {
      count: 1,
      criticality: 'important',
      does: 'looks whether keys of capabilities were rotated or retired',
    },
    revocation_watch: { count: 1, criticality: 'important', does: 'hears from passport what is revoked' },
    event_log: { count: 1, criticality: 'important', does: 'writes what happened to keys and backend to the log' },
  },
  locks: {},
  deadlines: {
    sign: {
      ms: 2000,
      config_key: 'kms.sign_deadline',
      covers: 'an operation with a private key, from request to answer',
    },
    verify: { ms: 2000, covers: 'a verification, and reading keys' },
    audit: { ms: 200, covers: 'one append to the audit log, before operations go on without it' },
    checkpoint: { ms: 1000, config_key: 'audit.checkpoint_deadline', covers: 'one signed checkpoint' },
    attest: { ms: 3000, covers: 'one renewal of the attestation' },
    keep: { ms: 2000, covers: 'one look of the keeper at the backend' },
    read: { ms: 5000, config_key: 'read_timeout', covers: 'a request body' },
    write: { ms: 5000, config_key: 'write_timeout', covers: 'an answer whose client does not read' },
  },
  retries: {
    unwrap: { policy: 'kms', idempotent_because: 'it changes nothing' },
    derive: { policy: 'kms', idempotent_because: 'the same label gives the same secret' },
    keep: { policy: 'kms', idempotent_because: 'what is open already is left alone' },
  },
});
