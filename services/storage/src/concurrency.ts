/** Everything that runs, waits or is shared in storage. */
import { declareConcurrency } from '@ron/service';

export const concurrency = declareConcurrency({
  service: 'storage',
  busy_labels: ['queue', 'endpoint'],
  channels: {
    // Two halves of work(512): an upload holds its worker while its client sends, and reads must not wait for it.
    work_get: {
      kind: 'work',
      label: 'work',
      capacity: 256,
      lanes: [{ name: 'get', key: 'address' }],
      from: 'listener',
      to: 'GET pool',
    },
    work_put: {
      kind: 'work',
      label: 'work',
      capacity: 256,
      lanes: [{ name: 'put', key: 'address' }],
      // A write has no total budget, it goes by progress: what counts as late here is the wait for a worker.
      budget_ms: 5000,
      from: 'listener',
      to: 'PUT pool',
    },
    repair: {
      kind: 'own',
      capacity: 256,
      from: 'planner',
      to: 'repair workers',
      policy: 'the most urgent first; a more urgent job displaces the newest of the lowest class',
      overflow: 'planned again; the loss of last copies is never shed for lesser work',
      metric: 'repair_skipped_total{reason="full"}',
    },
    events: { kind: 'broadcast', capacity: 1024, from: 'engine', to: 'log and audit' },
    shutdown: { kind: 'watch', from: 'drain', to: 'repair planner, striper, scrub, timers, config watch' },
    config: { kind: 'watch', from: 'config watch', to: 'volumes, repair, timers' },
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
      does: 'looks every second which volumes are there and could take a write, and takes back those that return',
    },
    repair_planner: {
      count: 1,
      criticality: 'important',
      does: 'compares what volumes hold with what they should, every durability.repair_interval and when one is lost',
    },
    repair_pool: {
      count: 4,
      config_key: 'durability.repair_workers',
      criticality: 'important',
      does: 'makes missing copies and shards again, all workers under one byte rate',
    },
    repair_pacing: { count: 1, criticality: 'important', does: 'lowers that byte rate while reads are slow' },
    scrub: { count: 1, criticality: 'important', does: 'reads every byte within durability.scrub_interval' },
    striper: {
      count: 1,
      criticality: 'optional',
      does: 'turns copies into stripes with parity, when durability.ec is on',
    },
    key_refresh: {
      count: 1,
      criticality: 'important',
      does: 'asks kms whether keys of capabilities were rotated or retired',
    },
    revocation_watch: { count: 1, criticality: 'important', does: 'polls passport for revocations' },
    config_watch: { count: 1, criticality: 'important', does: 'applies each reloaded configuration' },
    upload_expiry: { count: 1, criticality: 'important', does: 'expires unfinished uploads' },
    compact_timer: { count: 1, criticality: 'important', does: 'starts a compaction every storage.compact_interval' },
    compaction: { count: 0, criticality: 'optional', does: 'reclaims space, one run at a time' },
    repair_run: { count: 0, criticality: 'optional', does: 'a repair on request, one at a time' },
    scrub_run: { count: 0, criticality: 'optional', does: 'a scrub on request, one at a time' },
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
    write: { ms: 5000, config_key: 'write_timeout', covers: 'an answer whose client does not read' },
  },
});
