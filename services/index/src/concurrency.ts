/** The tasks, channels, locks and deadlines of index. */
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
  service: 'index',
  busy_labels: ['route'],
  channels: {
    work: {
      kind: 'work',
      capacity: 512,
      lanes: [
        { name: '/resolve', reserve_share: 1 / 8, key: 'address' },
        { name: '/providers', reserve_share: 1 / 8, key: 'address' },
      ],
      // Callers may shorten their budget; that must not count as overload.
      budget_ms: 1200,
      from: 'listener',
      to: 'resolver',
    },
    // Callers of one key share a lookup; these limit the callers.
    resolve_waiters: {
      kind: 'own',
      label: '/resolve',
      capacity: 1024,
      config_key: 'index.waiters_max',
      policy: 'reject new',
      overflow: '429 `busy` with `Retry-After`',
      metric: 'busy_rejections_total{route}',
      from: 'listener',
      to: 'resolver',
    },
    providers_waiters: {
      kind: 'own',
      label: '/providers',
      capacity: 1024,
      config_key: 'index.waiters_max',
      policy: 'reject new',
      overflow: '429 `busy` with `Retry-After`',
      metric: 'busy_rejections_total{route}',
      from: 'listener',
      to: 'resolver',
    },
    publish: {
      kind: 'mpsc',
      capacity: 512,
      policy: 'reject new',
      overflow: '429 `busy` with `Retry-After`',
      metric: 'queue_rejected_total{queue="publish"}',
      from: 'listener',
      to: 'publisher',
    },
    cache_in: {
      kind: 'mpsc',
      capacity: 1024,
      policy: 'drop oldest',
      overflow: 'the answer is not cached; the next request looks it up again',
      from: 'resolver',
      to: 'cache_janitor',
    },
    probes: {
      kind: 'mpsc',
      capacity: 256,
      policy: 'drop oldest',
      overflow: 'the provider stays unproven until a later lookup finds it again',
      from: 'resolver',
      to: 'prober',
    },
    provide: {
      kind: 'own',
      capacity: 4096,
      policy: 'left to the next sweep',
      overflow: 'the object or name is announced in the DHT by the next sweep, which begins at once',
      metric: 'queue_depth{queue="provide"}',
      from: 'listener, publisher',
      to: 'provider_sweep',
    },
    events: eventChannel('resolver, publisher, breaker_janitor, prober'),
    cfg_watch: configChannel('listener, resolver, cache_janitor, breaker_janitor, dht, key_refresh', 'config_reloader'),
    shutdown: shutdownChannel(
      'config_reloader, resolver, publisher, cache_janitor, breaker_janitor, dht, provider_sweep, prober, warmup',
    ),
  },
  tasks: {
    resolver: {
      count: 32,
      config_key: 'index.resolvers',
      criticality: 'critical',
      does: 'runs lookups: cache, database, DHT, then the ranking',
    },
    // [index I-2] One instance: the only writer of the name log.
    publisher: {
      count: 1,
      criticality: 'critical',
      does: 'checks, appends to the name log, commits to the database, invalidates the cache, answers',
    },
    config_reloader: SHELL_TASKS.config_watch,
    // [index I-2] One instance each: the only writers of `cache_meta` and `breaker_table`.
    cache_janitor: {
      count: 1,
      criticality: 'important',
      does: 'fills and expires the cache, refreshes pinned keys, purges expired rows',
    },
    breaker_janitor: {
      count: 1,
      criticality: 'important',
      does: 'makes open breakers half-open after their cooldown, and drops breakers without requests',
    },
    dht: { count: 1, criticality: 'important', does: 'joins the DHT with dht.mode=join, and reports its peers' },
    provider_sweep: {
      count: 1,
      criticality: 'important',
      does: 'announces the own objects in the DHT every 22 h, in the order of their keys, resumable',
    },
    prober: { count: 1, criticality: 'important', does: 'verifies a random slice of an object at a new provider' },
    warmup: { count: 1, criticality: 'optional', does: 'resolves cache.warmup_keys once after the start' },
    ...EVENT_TASK,
    ...REVOCATION_TASK,
    key_refresh: SHELL_TASKS.key_refresh,
    reindex: {
      count: 0,
      criticality: 'optional',
      does: 'empties the cache and begins a new announce epoch, on request',
    },
  },
  // `config_snapshot` (rank 1 in the specification) and the policy of trust and rates are immutable snapshots and need no lock.
  locks: {
    cache_meta: { rank: 2, guards: 'expiry, pins and detached lookups of cached keys' },
    breaker_table: { rank: 3, guards: 'the breakers of peers and providers' },
    metrics_scratch: { rank: 4, guards: 'totals of lookups until a scrape reads them' },
  },
  deadlines: {
    resolve: {
      ms: 1200,
      config_key: 'dht.deadline_ms',
      covers: 'a lookup from request to answer; its DHT phase ends 50 ms earlier',
    },
    publish: { ms: 5000, covers: 'a change of names, trust or pins, from request to answer; with a quorum in `join`' },
    announce: { ms: 2000, covers: 'one announcement' },
    db: { ms: 1000, covers: 'one call of the database' },
    probe: { ms: 2000, covers: 'the proof of one provider' },
    ...SHELL_DEADLINES,
  },
  breakers: {
    peers: {
      error_window_ms: 10_000,
      trip_threshold: 0.5,
      calls_min: 3,
      cooldown_ms: 5000,
      half_open_probes: 2,
      is_own: true,
      guards: 'requests to one peer of the DHT, and probes of one provider; the keys `breaker.*` override the numbers',
    },
  },
  retries: {
    dht_request: {
      policy: 'index',
      idempotent_because: 'a request reads, or stores a record that the peer may already have',
    },
  },
  actors: {
    database: 'one writer thread and two reader threads of SQLite',
    peers: 'other nodes of the DHT',
    name_log: 'the transparency log of this node',
  },
  requests: {
    'GET /resolve/*': {
      queue: 'work',
      deadline: 'resolve',
      shortcut: 'a fresh cache entry',
      steps: [
        ['resolver', 'database', 'name record, own object, known providers'],
        ['database', 'resolver', 'rows'],
        ['resolver', 'peers', 'alpha requests; beta more after hedge_ms'],
        ['peers', 'resolver', 'providers, records, closer peers'],
        ['resolver', 'cache_janitor', 'answer for the cache'],
      ],
      answer: '200 with the ranked providers',
    },
    'PUT /names/*': {
      queue: 'publish',
      deadline: 'publish',
      steps: [
        ['publisher', 'name_log', 'append, sync'],
        ['name_log', 'publisher', 'index of the entry'],
        ['publisher', 'database', 'commit'],
        ['database', 'publisher', 'committed'],
        ['publisher', 'cache_janitor', 'invalidate, detach the running lookup'],
      ],
      answer: '201 with the record',
    },
  },
  drain: {
    finishes: 'resolvers and publisher finish accepted work',
    // The DHT is closed once nothing uses it any more; its last peers go to the database.
    closes: ['lookups', 'name log with its last checkpoint', 'DHT', 'database', 'capability keys'],
  },
});
