/** Everything that runs, waits or is shared in storage. */
import { declareConcurrency } from '@ron/kernel';

export const concurrency = declareConcurrency({
  service: 'storage',
  busy_labels: ['queue', 'endpoint'],
  channels: {
    // Two halves of work(512): an upload holds its worker for as long as its client sends, and reads must not wait for it.
    work_get: { kind: 'work', label: 'work', capacity: 256, lanes: ['get'], from: 'listener', to: 'GET pool' },
    work_put: {
      kind: 'work',
      label: 'work',
      capacity: 256,
      lanes: ['put'],
      // A write has no total budget, it goes by progress: what counts as late here is the wait for a worker.
      budget_ms: 5000,
      from: 'listener',
      to: 'PUT pool',
    },
    events: { kind: 'broadcast', capacity: 1024, from: 'engine', to: 'log and audit' },
  },
  tasks: {
    get_pool: {
      count: 64,
      config_key: 'storage.get_workers',
      criticality: 'critical',
      does: 'reads what is not in RAM, verifies it and hands it to the listener',
    },
    put_pool: {
      count: 128,
      config_key: 'storage.put_workers',
      criticality: 'critical',
      does: 'takes bytes in, hashes them and answers when they are durable',
    },
    event_log: { count: 1, criticality: 'important', does: 'writes what happened to stored records to the log' },
    volume_watch: {
      count: 1,
      criticality: 'important',
      does: 'looks every second whether the volume could take a write, for /readyz',
    },
    key_refresh: {
      count: 1,
      criticality: 'important',
      does: 'asks kms whether keys of capabilities were rotated or retired',
    },
    revocation_watch: { count: 1, criticality: 'important', does: 'hears from passport what is revoked' },
    upload_expiry: { count: 1, criticality: 'important', does: 'forgets uploads that nobody went on with' },
    compact_timer: { count: 1, criticality: 'important', does: 'starts a compaction every storage.compact_interval' },
    compaction: { count: 0, criticality: 'optional', does: 'gives back the room of what nobody needs, one at a time' },
  },
  locks: {},
  deadlines: {
    get: { ms: 2000, config_key: 'storage.get_deadline', covers: 'a read up to its first byte' },
    wait: { ms: 5000, config_key: 'storage.put_wait', covers: 'the wait of a write for a worker' },
    put: {
      ms: 30_000,
      config_key: 'storage.put_deadline',
      covers: 'a write from its last byte to its answer, and each step of the disk before',
    },
    read: { ms: 5000, config_key: 'read_timeout', covers: 'a request body without progress' },
    write: { ms: 5000, config_key: 'write_timeout', covers: 'an answer that nobody reads' },
  },
});
