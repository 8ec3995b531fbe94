import assert from 'node:assert/strict';
import { test } from 'node:test';
import { declareConcurrency, isConcurrency, renderConcurrency } from './declaration.ts';

const declared = declareConcurrency({
  service: 'storage',
  busy_labels: ['endpoint'],
  channels: {
    work: {
      kind: 'work',
      capacity: 512,
      lanes: [{ name: 'get', priority: 1, reserve_share: 0.25, key: 'address' }, 'put'],
      from: 'listener',
      to: 'get_pool, put_pool',
    },
    audit: {
      kind: 'mpsc',
      capacity: 2048,
      config_key: 'audit.capacity',
      from: 'signers',
      to: 'appender',
      policy: 'wait, then drop oldest',
      overflow: 'loses the oldest event | not a checkpoint',
      metric: 'audit_dropped_total',
    },
    events: { kind: 'broadcast', capacity: 1024, from: 'core', to: 'observers' },
    shutdown: { kind: 'watch', from: 'supervisor', to: 'all' },
  },
  tasks: {
    get_pool: { count: 4, config_key: 'pool.get', criticality: 'critical', does: 'streams chunks' },
    planner: { count: 1, criticality: 'important', restarts_max: 10, does: 'plans repairs' },
    request: { count: 0, criticality: 'optional', does: 'one request' },
  },
  locks: { counters: { rank: 3, guards: 'totals' }, meta: { rank: 1, guards: 'the manifest index' } },
  deadlines: {
    read: { ms: 5000, config_key: 'read_timeout', covers: 'one read' },
    rpc: { ms: 1000, covers: 'a call to index' },
  },
  breakers: {
    peers: {
      error_window_ms: 10_000,
      trip_threshold: 0.5,
      calls_min: 10,
      cooldown_ms: 2000,
      half_open_probes: 3,
      guards: 'calls to one peer',
    },
  },
  retries: { lookup: { policy: 'rpc', idempotent_because: 'a lookup changes nothing' } },
});

test('the tables show the declaration, in Markdown that keeps its columns', () => {
  const text = renderConcurrency(declared);
  const rows = text.split('\n').filter((line) => line.startsWith('|'));
  assert.ok(
    rows.includes(
      '| `work` | work | 512 | listener -> get_pool, put_pool | reject new; in standing overload newest first | 429 `busy` with `Retry-After` | `busy_rejections_total{endpoint}` |',
    ),
  );
  assert.ok(
    rows.includes(
      '| `audit` | mpsc | 2048 (`audit.capacity`) | signers -> appender | wait, then drop oldest | loses the oldest event \\| not a checkpoint | `audit_dropped_total` |',
    ),
  );
  assert.ok(rows.includes('| `get` | `work` | 1 | 25 % | address |'));
  assert.ok(rows.includes('| `put` | `work` | 0 | none | order of arrival |'));
  assert.ok(rows.includes('| `get_pool` | 4 (`pool.get`) | critical | 5 per 60 s | streams chunks |'));
  assert.ok(rows.includes('| `planner` | 1 | important | 10 per 60 s | plans repairs |'));
  assert.ok(rows.includes('| `request` | on demand | optional | not restarted | one request |'));
  assert.ok(rows.includes('| `read` | 5000 ms | `read_timeout` | one read |'));
  assert.ok(rows.includes('| `rpc` | 1000 ms | fixed | a call to index |'));
  assert.ok(text.indexOf('`meta`') < text.indexOf('`counters`'), 'locks by rank');
  assert.ok(rows.includes('| `lookup` | rpc | 3 | a lookup changes nothing |'));
  assert.match(text, /over 50 % errors in 10000 ms, from 10 calls/);
});

test('sections without entries are left out', () => {
  const bare = declareConcurrency({ service: 'x', channels: {}, tasks: {}, locks: {}, deadlines: {} });
  assert.equal(renderConcurrency(bare), '');
});

test('a declaration is frozen, known as one, and its names are literal types', () => {
  assert.ok(isConcurrency(declared));
  assert.ok(!isConcurrency({ ...declared }));
  assert.ok(Object.isFrozen(declared.channels.work) && Object.isFrozen(declared.channels.work.lanes));
  const name: 'work' | 'audit' | 'events' | 'shutdown' = 'work' satisfies keyof typeof declared.channels;
  assert.equal(declared.channels[name].kind, 'work');
  // @ts-expect-error: not declared
  assert.equal(declared.channels.wrok, undefined);
});

test('a declaration that contradicts itself is refused', () => {
  const base = { service: 'x', channels: {}, tasks: {}, locks: {}, deadlines: {} };
  const refused = (part: object, reason: RegExp): void =>
    assert.throws(() => declareConcurrency({ ...base, ...part }), reason);
  refused({ channels: { a: { kind: 'broadcast', capacity: 0, from: '', to: '' } } }, /capacity of at least 1/);
  refused({ channels: { a: { kind: 'mpsc', capacity: 1.5, from: '', to: '' } } }, /capacity of at least 1/);
  // [storage I-3] [kms I-3] [index I-3] [edge I-3] [interop I-3]
  refused({ channels: { a: { kind: 'mpsc', from: '', to: '' } } }, /capacity of at least 1/);
  refused({ channels: { a: { kind: 'work', capacity: 1, lanes: [], from: '', to: '' } } }, /has a lane/);
  const reserved = { name: 'get', reserve_share: 2 };
  refused({ channels: { a: { kind: 'work', capacity: 1, lanes: [reserved], from: '', to: '' } } }, /a share/);
  refused({ tasks: { a: { count: -1, criticality: 'critical', does: '' } } }, /has a count/);
  refused({ deadlines: { a: { ms: 0, covers: '' } } }, /positive/);
  refused({ locks: { a: { rank: 1, guards: '' }, b: { rank: 1, guards: '' } } }, /rank of its own/);
  const events = { kind: 'broadcast', capacity: 1, from: '', to: '' };
  refused({ channels: { a: events, b: { ...events, label: 'a' } } }, /name of its own in metrics/);
  const work = { kind: 'work', capacity: 1, lanes: ['get'], from: '', to: '' };
  refused({ channels: { a: work, b: { ...work, label: 'a' } } }, /lanes of its own/);
  refused({ channels: { a: work, b: { ...events, label: 'a' } } }, /name of its own in metrics/);
  refused({ deadlines: { 'a b': { ms: 1, covers: '' } } }, /lower case/);
});
