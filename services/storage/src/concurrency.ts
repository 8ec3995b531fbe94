/** The tasks, channels, locks and deadlines of storage. */
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
      to: 'get_pool',
    },
    work_put: {
      kind: 'work',
      label: 'work',
      capacity: 256,
      lanes: [{ name: 'put', key: 'address' }],
      // A write has no total budget because it goes by progress. This budget is for its wait for a worker.
      budget_ms: 5000,
      from: 'listener',
      to: 'put_pool',
    },
    repair: {
      kind: 'own',
      capacity: 256,
      from: 'repair_planner, repair_run, scrub, scrub_run, engine',
      to: 'repair_pool',
      policy: 'the most urgent first; a more urgent job displaces the newest of the lowest class',
      overflow: 'planned again; the loss of last copies is never shed for lesser work',
      metric: 'repair_skipped_total{reason="full"}',
    },
    announce: {
      kind: 'own',
      capacity: 4096,
      from: 'engine',
      to: 'announcer',
      policy: 'each address once, the oldest first',
      overflow: 'a walk over all objects announces it',
      metric: 'queue_dropped_total{queue}',
    },
    events: eventChannel('engine'),
    shutdown: shutdownChannel('repair_planner, striper, scrub, upload_expiry, compact_timer, announcer, config_watch'),
    config: configChannel('repair_planner, striper, key_refresh, compact_timer'),
  },
  tasks: {
    get_pool: {
      count: 64,
      config_key: 'storage.get_workers',
      criticality: 'critical',
      does: 'reads objects that are not in RAM, verifies them and passes them to the listener',
    },
    put_pool: {
      count: 128,
      config_key: 'storage.put_workers',
      criticality: 'critical',
      does: 'receives bodies, hashes them and answers once they are durable',
    },
    volume_watch: {
      count: 1,
      criticality: 'important',
      does: 'probes every second which volumes are present and writable, and readmits those that return',
    },
    repair_planner: {
      count: 1,
      criticality: 'important',
      does: 'compares the content of volumes with their targets, every durability.repair_interval and after a loss',
    },
    repair_pool: {
      count: 4,
      config_key: 'durability.repair_workers',
      criticality: 'important',
      does: 'rebuilds missing copies and shards; all workers share one byte rate',
    },
    repair_pacing: { count: 1, criticality: 'important', does: 'lowers that byte rate while reads are slow' },
    scrub: { count: 1, criticality: 'important', does: 'reads every byte within durability.scrub_interval' },
    striper: {
      count: 1,
      criticality: 'optional',
      does: 'converts copies into stripes with parity if durability.ec is on',
    },
    upload_expiry: { count: 1, criticality: 'important', does: 'expires unfinished uploads' },
    compact_timer: { count: 1, criticality: 'important', does: 'starts a compaction every storage.compact_interval' },
    announcer: {
      count: 1,
      criticality: 'important',
      does: 'announces new and removed objects to index, and all objects in a walk',
    },
    ...EVENT_TASK,
    ...REVOCATION_TASK,
    ...SHELL_TASKS,
    compaction: { count: 0, criticality: 'optional', does: 'reclaims space, one run at a time' },
    repair_run: { count: 0, criticality: 'optional', does: 'a repair on request, one at a time' },
    scrub_run: { count: 0, criticality: 'optional', does: 'a scrub on request, one at a time' },
  },
  // The other two locks of the specification are not needed: configuration is an immutable snapshot, and the index changes in synchronous steps of
  // one object (ARCHITECTURE.md).
  locks: { io_counters: { rank: 3, guards: 'how long reads and writes took, until repair_pacing takes the figures' } },
  deadlines: {
    get: { ms: 2000, config_key: 'storage.get_deadline', covers: 'a read up to its first byte' },
    wait: { ms: 5000, config_key: 'storage.put_wait', covers: 'the wait of a write for a worker' },
    put: {
      ms: 30_000,
      config_key: 'storage.put_deadline',
      covers: 'a write from its last byte to its answer, and each disk step before',
    },
    announce: { ms: 1000, covers: 'an announcement to index, with its retries' },
    announce_read: { ms: 2000, covers: 'reading the sizes and types of the objects of an announcement' },
    ...SHELL_DEADLINES,
  },
  retries: { announce: { policy: 'rpc', idempotent_because: 'an announcement states the objects, not a change' } },
  actors: { engine: 'object store and volumes' },
  requests: {
    'GET /o/:addr': {
      queue: 'work_get',
      deadline: 'get',
      shortcut: 'bytes in RAM or in the page cache',
      steps: [
        ['get_pool', 'engine', 'open the object, read the first chunk'],
        ['engine', 'get_pool', 'verified bytes'],
      ],
      answer: '200 or 206, streamed chunk by chunk',
    },
    'PUT /o/:addr': {
      queue: 'work_put',
      deadline: 'wait',
      steps: [
        ['put_pool', 'engine', 'append chunks while the body arrives'],
        ['put_pool', 'engine', 'append the manifest, sync'],
        ['engine', 'put_pool', 'durable on enough volumes'],
      ],
      answer: '201 with a receipt',
    },
  },
  drain: {
    finishes: 'repair_pool finishes queued repairs',
    closes: ['uploads', 'volumes', 'capability keys'],
  },
});
