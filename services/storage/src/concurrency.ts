/** Everything that runs, waits or is shared in storage. */
import {
  declareConcurrency,
  EVENT_CHANNEL,
  EVENT_TASK,
  REVOCATION_TASK,
  SHELL_CHANNELS,
  SHELL_DEADLINES,
  SHELL_TASKS,
} from '@ron/service';

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
    ...EVENT_CHANNEL,
    ...SHELL_CHANNELS,
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
    upload_expiry: { count: 1, criticality: 'important', does: 'expires unfinished uploads' },
    compact_timer: { count: 1, criticality: 'important', does: 'starts a compaction every storage.compact_interval' },
    ...EVENT_TASK,
    ...REVOCATION_TASK,
    ...SHELL_TASKS,
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
    ...SHELL_DEADLINES,
  },
});
