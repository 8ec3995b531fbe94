/** The tasks, channels, locks and deadlines of edge. */
import {
  configChannel,
  declareConcurrency,
  eventChannel,
  EVENT_TASK,
  REVOCATION_TASK,
  SHELL_TASKS,
  shutdownChannel,
} from '@ron/service';

export const concurrency = declareConcurrency({
  service: 'edge',
  busy_labels: ['endpoint'],
  channels: {
    // [edge I-3] [edge I-9] Only leaders of a key submit a fill; hits never queue.
    work: {
      kind: 'work',
      capacity: 512,
      config_key: 'edge.work_capacity',
      lanes: [{ name: '/edge/assets', key: 'address' }],
      budget_ms: 5000,
      from: 'listener',
      to: 'worker',
    },
    waiters: {
      kind: 'own',
      label: '/edge/assets',
      capacity: 1024,
      config_key: 'fill.waiters_max',
      policy: 'reject new',
      overflow: '429 `busy` with `Retry-After`',
      metric: 'busy_rejections_total{endpoint}',
      from: 'listener',
      to: 'worker',
    },
    reads: {
      kind: 'own',
      capacity: 64,
      config_key: 'edge.reads_max',
      policy: 'reject new',
      overflow: '429 `busy` with `Retry-After`',
      metric: 'busy_rejections_total{endpoint}',
      from: 'listener',
      to: 'listener',
    },
    fills: {
      kind: 'mpsc',
      capacity: 1024,
      policy: 'reject new',
      overflow: 'the asset is answered, but not cached',
      metric: 'queue_rejected_total{queue="fills"}',
      from: 'worker',
      to: 'fill_log',
    },
    verify: {
      kind: 'mpsc',
      capacity: 16,
      policy: 'reject new',
      overflow: '429 `busy` with `Retry-After`',
      metric: 'queue_rejected_total{queue="verify"}',
      from: 'listener',
      to: 'pack_verifier',
    },
    events: eventChannel('worker, pack_verifier, evictor, fill_log, config_watch'),
    config: configChannel('listener, worker, pack_verifier, key_refresh'),
    shutdown: shutdownChannel('worker, pack_verifier, evictor, fill_log, config_watch'),
  },
  tasks: {
    worker: {
      count: 32,
      config_key: 'edge.workers',
      criticality: 'critical',
      does: 'fetches assets: allow-list, request, validation, body into the object writer',
    },
    // [edge I-2] One instance each: the only writers of packs, of notes that are added, and of notes that are removed.
    pack_verifier: {
      count: 1,
      criticality: 'important',
      does: 'verifies and mounts packs at the start, after uploads and after changes of their files',
    },
    evictor: {
      count: 1,
      criticality: 'important',
      does: 'keeps cached assets within cache.disk_bytes, and removes the notes of evicted ones',
    },
    fill_log: {
      count: 1,
      criticality: 'important',
      does: 'appends fills to the log, then writes the notes that make them cached',
    },
    config_watch: SHELL_TASKS.config_watch,
    ...EVENT_TASK,
    ...REVOCATION_TASK,
    key_refresh: SHELL_TASKS.key_refresh,
  },
  locks: {
    state_meta: { rank: 1, guards: 'mode in force' },
    routing_table: { rank: 2, guards: 'mounted packs' },
    counters: { rank: 3, guards: 'hits by tier until a scrape reads them' },
  },
  deadlines: {
    fill: { ms: 5000, covers: 'a fill: the wait for a worker and all tries' },
    fill_log: { ms: 5000, covers: 'one batch of fills: the append to the fill log, then the notes' },
    checkpoint: { ms: 2000, covers: 'a checkpoint of the fill log, with its signature by kms' },
    pack: { ms: 30_000, covers: 'the verification of a pack, after its last byte' },
    pack_read: { ms: 5000, covers: 'one read of a pack' },
    // Their key, ingress.timeout_secs, counts seconds, so they do not name it.
    read: { ms: 5000, covers: 'a request body without progress' },
    write: {
      ms: 5000,
      covers: 'an answer whose client acknowledges nothing; acknowledged bytes add time at `server.rate_min`',
    },
  },
  breakers: {
    origins: {
      error_window_ms: 10_000,
      trip_threshold: 0.5,
      calls_min: 5,
      cooldown_ms: 2000,
      half_open_probes: 1,
      is_own: true,
      guards: 'requests to one origin',
    },
  },
  retries: {
    live_fill: { policy: 'liveFill', idempotent_because: 'a GET has no effect on the origin' },
  },
  actors: {
    origin: 'the HTTPS server of an asset',
    cache: 'assets in memory and on disk',
  },
  requests: {
    'GET /edge/assets/*': {
      queue: 'work',
      deadline: 'fill',
      shortcut: 'a pack, or a fresh asset in memory or on disk',
      steps: [
        ['worker', 'origin', 'GET over HTTPS'],
        ['origin', 'worker', '200 with an ETag'],
        ['worker', 'cache', 'body into the object writer, hashed'],
        ['worker', 'fill_log', 'provenance of the asset'],
        ['fill_log', 'cache', 'note of the key'],
      ],
      answer: '200 or 206 with a strong ETag',
    },
  },
  drain: {
    finishes: 'queued and running fills within 3 s',
    closes: ['fills', 'fill log with its last checkpoint', 'cache', 'packs', 'capability keys'],
  },
});
