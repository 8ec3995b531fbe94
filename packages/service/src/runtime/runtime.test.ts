import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import { Deadline, isRonError, RonError, sleep } from '@ron/kernel';
import { createLog, Metrics } from '@ron/telemetry';
import { declareConcurrency } from './declaration.ts';
import { eventually } from '@ron/testkit';
import { ServiceRuntime } from './runtime.ts';

const concurrency = declareConcurrency({
  service: 'storage',
  busy_labels: ['queue', 'endpoint'],
  channels: {
    work: { kind: 'work', capacity: 2, lanes: ['get', 'put'], from: 'listener', to: 'pool' },
    repair: {
      kind: 'mpsc',
      capacity: 2,
      label: 'plans',
      from: 'planner',
      to: 'workers',
      policy: 'reject new',
      overflow: 'next tick',
    },
    audit: {
      kind: 'mpsc',
      capacity: 4,
      config_key: 'audit.capacity',
      from: 'all',
      to: 'sink',
      policy: 'drop oldest',
      overflow: 'lost',
    },
    events: { kind: 'broadcast', capacity: 1, from: 'core', to: 'observers' },
    shutdown: { kind: 'watch', from: 'supervisor', to: 'all' },
  },
  tasks: {
    pool: { count: 1, config_key: 'pool.size', criticality: 'critical', does: 'serves' },
    request: { count: 0, criticality: 'optional', does: 'one request' },
  },
  locks: { meta: { rank: 1, guards: 'meta' }, counters: { rank: 2, guards: 'counters' } },
  deadlines: {
    read: { ms: 5000, config_key: 'read_timeout', covers: 'one read' },
    fill: { ms: 20, covers: 'a fill' },
  },
  breakers: {
    peers: {
      error_window_ms: 1000,
      trip_threshold: 0.5,
      calls_min: 1,
      cooldown_ms: 60_000,
      half_open_probes: 1,
      guards: 'peers',
    },
  },
  retries: { lookup: { policy: 'rpc', idempotent_because: 'a lookup changes nothing' } },
  retry_labels: ['op', 'result'],
});

type Runtime = ServiceRuntime<typeof concurrency>;
const VALUES = { pool: { size: 3 }, audit: { capacity: 2 }, read_timeout: 1234 };

function runtimeOf(t: TestContext, lines: string[] = [], config: { value: unknown } = { value: VALUES }): Runtime {
  const log = createLog({ service: 'storage', sink: { write: (line) => void lines.push(line) } });
  const runtime = new ServiceRuntime(concurrency, { metrics: new Metrics('storage'), log, config });
  t.after(() => runtime.stop({ drain_ms: 0 }));
  return runtime;
}

async function series(runtime: Runtime): Promise<Map<string, number>> {
  const text = await runtime.metrics.text();
  const lines = text.split('\n').filter((line) => line !== '' && !line.startsWith('#'));
  return new Map(
    lines.map((line) => [line.slice(0, line.lastIndexOf(' ')), Number(line.slice(line.lastIndexOf(' ')))]),
  );
}

test('only declared names compile, and at run time they throw and name the one that was meant', (t) => {
  const runtime = runtimeOf(t);
  // @ts-expect-error: not declared
  assert.throws(() => runtime.workQueue('wrok'), /channel wrok is not declared; did you mean work\?/);
  // @ts-expect-error: declared as another kind
  assert.throws(() => runtime.mpsc('events'), /declared as broadcast, not as mpsc/);
  // @ts-expect-error: not declared
  assert.throws(() => runtime.spawn('toString', () => Promise.resolve()), /task toString is not declared/);
  // @ts-expect-error: not declared
  assert.throws(() => runtime.deadline('write'), /deadline write is not declared/);
  // @ts-expect-error: not declared
  assert.throws(() => runtime.cell('__proto__', 0), /lock __proto__ is not declared/);
  // @ts-expect-error: not declared
  assert.throws(() => runtime.breaker('kms'), /breaker kms is not declared/);
  const deadline = runtime.deadline('read');
  // @ts-expect-error: not declared
  assert.throws(() => void runtime.retry('put', () => Promise.resolve(), { deadline }), /retry put is not declared/);
  assert.throws(() => runtime.spawn('request', () => Promise.resolve()), /one-shot/);
  assert.throws(() => void runtime.run('pool', () => Promise.resolve()), /long-lived/);
});

test('numbers come from the declaration, or from the config key it names as it is now', (t) => {
  const config = { value: VALUES };
  const runtime = runtimeOf(t, [], config);
  assert.equal(runtime.workQueue('work').capacity, 2);
  assert.equal(runtime.mpsc('audit').capacity, 2);
  assert.equal(runtime.cell('counters', 0).rank, 2);
  assert.equal(runtime.deadline('fill').budget_ms, 20);
  assert.equal(runtime.deadline('read').budget_ms, 1234);
  config.value = { ...VALUES, read_timeout: 99 };
  assert.equal(runtime.deadline('read').budget_ms, 99);
  const metrics = new Metrics('storage');
  const declared = new ServiceRuntime(concurrency, { metrics, log: runtime.log });
  assert.equal(declared.deadline('read').budget_ms, 5000);
});

test('a config key that the config does not have is found at the start', (t) => {
  const { log } = runtimeOf(t);
  const make = (): unknown =>
    new ServiceRuntime(concurrency, { metrics: new Metrics('x'), log, config: { value: {} } });
  assert.throws(make, /config key audit\.capacity gives a number/);
});

test('unbuilt() lists declarations that were never built', async (t) => {
  const runtime = runtimeOf(t);
  assert.equal(runtime.unbuilt().length, 13);
  runtime.workQueue('work');
  runtime.mpsc('repair');
  runtime.mpsc('audit');
  runtime.broadcast('events');
  runtime.watch('shutdown', false);
  runtime.spawn('pool', (ctx) => sleep(60_000, ctx.stopping));
  await runtime.run('request', () => Promise.resolve());
  runtime.cell('meta', {});
  runtime.deadline('read');
  runtime.deadline('fill');
  runtime.breaker('peers');
  await runtime.retry('lookup', () => Promise.resolve(), { deadline: runtime.deadline('read') });
  assert.deepEqual(runtime.unbuilt(), ['lock counters']);
  runtime.cell('counters', {});
  assert.deepEqual(runtime.unbuilt(), []);
  assert.throws(() => runtime.workQueue('work'), /built once/);
});

test('queues are measured: depth, drops, refusals, and busy under the labels of the service', async (t) => {
  const runtime = runtimeOf(t);
  const queue = runtime.workQueue('work');
  const submit = (): Promise<unknown> => queue.submit('put', runtime.deadline('read'), () => Promise.resolve());
  const accepted = [submit(), submit()].map((job) => job.catch(() => {}));
  await assert.rejects(submit(), (error) => isRonError(error, 'busy'));
  const repair = runtime.mpsc<number>('repair');
  for (const item of [1, 2, 3]) repair.trySend(item);
  const audit = runtime.mpsc<number>('audit');
  for (const item of [1, 2, 3, 4]) audit.pushDropOldest(item);
  const found = await series(runtime);
  assert.equal(found.get('queue_depth{queue="work"}'), 2);
  assert.equal(found.get('queue_depth{queue="plans"}'), 2);
  assert.equal(found.get('busy_rejections_total{queue="work",endpoint="put"}'), 1);
  assert.equal(found.get('busy_rejections_total{queue="work",endpoint="get"}'), 0);
  assert.equal(found.get('queue_dropped_total{queue="audit"}'), 2);
  assert.equal(found.get('queue_dropped_total{queue="work"}'), 0);
  assert.equal(found.get('queue_rejected_total{queue="plans"}'), 1);
  await runtime.stop({ drain_ms: 0 });
  await Promise.all(accepted);
});

test('a queue of the own making of a service has the declared capacity, is measured and closed', async () => {
  const declaration = declareConcurrency({
    service: 'storage',
    channels: {
      repair: { kind: 'own', capacity: 3, from: 'a', to: 'b', policy: 'by urgency', overflow: 'none', metric: 'm' },
    },
    tasks: {},
    locks: {},
    deadlines: {},
  });
  const log = createLog({ service: 'storage', sink: { write: () => undefined } });
  const runtime = new ServiceRuntime(declaration, { metrics: new Metrics('storage'), log });
  let closed = 0;
  const totals = { busy_total: 5, rejected_total: 7 };
  const queue = runtime.own('repair', (capacity) => ({
    capacity,
    depth: 2,
    ...totals,
    close: () => void (closed += 1),
  }));
  assert.equal(queue.capacity, 3);
  const text = await runtime.metrics.text();
  assert.match(text, /queue_depth\{queue="repair"\} 2/);
  assert.match(text, /busy_rejections_total\{queue="repair"\} 5/);
  assert.match(text, /queue_rejected_total\{queue="repair"\} 7/);
  assert.deepEqual(runtime.unbuilt(), []);
  await runtime.stop({ drain_ms: 0 });
  runtime.close();
  assert.equal(closed, 1);
});

test('work queues that share a label are shown added up, and refusals by lane', async () => {
  const half = { kind: 'work', capacity: 1, label: 'work', from: 'listener', to: 'pool' } as const;
  const halves = declareConcurrency({
    service: 'storage',
    busy_labels: ['queue', 'endpoint'],
    channels: { work_get: { ...half, lanes: ['get'] }, work_put: { ...half, lanes: ['put'] } },
    tasks: {},
    locks: {},
    deadlines: { read: { ms: 5000, covers: 'one read' } },
  });
  const metrics = new Metrics('storage');
  const runtime = new ServiceRuntime(halves, { metrics, log: createLog({ service: 'storage', level: 'silent' }) });
  const queues = { get: runtime.workQueue('work_get'), put: runtime.workQueue('work_put') };
  const submit = (lane: 'get' | 'put'): Promise<unknown> =>
    queues[lane].submit(lane, runtime.deadline('read'), () => Promise.resolve());
  const accepted = [submit('get'), submit('put')].map((job) => job.catch(() => {}));
  await assert.rejects(submit('put'), (error) => isRonError(error, 'busy'));
  const text = await metrics.text();
  assert.match(text, /^queue_depth\{queue="work"\} 2$/m);
  assert.match(text, /^busy_rejections_total\{queue="work",endpoint="get"\} 0$/m);
  assert.match(text, /^busy_rejections_total\{queue="work",endpoint="put"\} 1$/m);
  await runtime.stop({ drain_ms: 0 });
  await Promise.all(accepted);
});

test('a slow subscriber is counted by topic and warned about once in 5 s', async (t) => {
  const lines: string[] = [];
  const runtime = runtimeOf(t, lines);
  const events = runtime.broadcast<number>('events');
  events.subscribe('slow');
  for (let event = 0; event < 10; event++) events.publish(event);
  const found = await series(runtime);
  assert.equal(found.get('bus_lagged_total{topic="events"}'), 9);
  assert.equal(found.get('queue_dropped_total{queue="events"}'), 9);
  assert.equal(lines.length, 1);
});

test('an expired deadline is counted by operation', async (t) => {
  const runtime = runtimeOf(t);
  const deadline = runtime.deadline('fill');
  await assert.rejects(
    deadline.run((signal) => sleep(60_000, signal)),
    (error) => isRonError(error, 'timeout'),
  );
  assert.equal((await series(runtime)).get('io_timeouts_total{op="fill"}'), 1);
});

test('tasks are measured: spawned, restarted, cancelled, aborted', async (t) => {
  const runtime = runtimeOf(t);
  runtime.spawn('pool', async (ctx) => {
    // One obeys the request to stop, one only the abort; the third has just crashed and waits for its restart.
    if (ctx.index === 2) throw new Error('crashed');
    await sleep(60_000, ctx.index === 0 ? ctx.stopping : ctx.signal);
  });
  await runtime.run('request', () => Promise.resolve());
  const restarted = async (): Promise<number> => (await series(runtime)).get('tasks_restarted_total{kind="pool"}')!;
  await eventually('a task is restarted', async () => (await restarted()) > 0);
  const before = await series(runtime);
  assert.ok(before.get('tasks_restarted_total{kind="pool"}')! >= 1);
  assert.ok(before.get('tasks_spawned_total{kind="pool"}')! >= 4);
  assert.equal(before.get('tasks_spawned_total{kind="request"}'), 1);
  await runtime.stop({ drain_ms: 50 });
  const after = await series(runtime);
  // [storage I-6] [kms I-6] [index I-6] [edge I-6] [interop I-6] Both ways to end are counted.
  assert.equal(after.get('tasks_aborted_total{kind="pool"}'), 1);
  assert.equal(after.get('tasks_canceled_total{kind="pool"}'), 1);
});

test('breakers of a kind are shown together, and forgetting one does not take its count back', async (t) => {
  const runtime = runtimeOf(t);
  const [first, second] = [runtime.breaker('peers', { target: 'a' }), runtime.breaker('peers', { target: 'b' })];
  const fail = (): Promise<never> => Promise.reject(new RonError('timeout', 'too late'));
  await assert.rejects(first.run(fail));
  for (let call = 0; call < 3; call++) {
    await assert.rejects(first.run(fail), (error) => isRonError(error, 'breaker_open'));
  }
  const found = await series(runtime);
  assert.equal(found.get('breaker_state{target="peers",state="open"}'), 1);
  assert.equal(found.get('breaker_state{target="peers",state="closed"}'), 1);
  assert.equal(found.get('breaker_open_total{target="peers"}'), 3);
  runtime.forget(first);
  runtime.forget(second);
  const after = await series(runtime);
  assert.equal(after.get('breaker_state{target="peers",state="open"}'), 0);
  assert.equal(after.get('breaker_open_total{target="peers"}'), 3);
});

test('retries of a declared operation are counted by how they went', async (t) => {
  const runtime = runtimeOf(t);
  const policy = { tries_max: 3, backoff_ms: () => 1 };
  const flaky = (_signal: AbortSignal, attempt: number): Promise<number> =>
    attempt < 2 ? Promise.reject(new RonError('busy', 'not now')) : Promise.resolve(attempt);
  assert.equal(await runtime.retry('lookup', flaky, { deadline: runtime.deadline('read'), policy }), 2);
  const found = await series(runtime);
  assert.equal(found.get('backoff_retries_total{op="lookup",result="failed"}'), 1);
  assert.equal(found.get('backoff_retries_total{op="lookup",result="ok"}'), 1);
});

test('stop lets tasks finish within the drain; a second stop can only shorten it', async (t) => {
  const runtime = runtimeOf(t);
  const ended: number[] = [];
  runtime.spawn('pool', async (ctx) => {
    await sleep(60_000, ctx.stopping).catch(() => {});
    await sleep(30, ctx.signal);
    ended.push(ctx.index);
  });
  assert.deepEqual(await runtime.stop({ drain_ms: 5000 }), { aborted: 0, stuck: 0 });
  assert.deepEqual(
    ended.toSorted((a, b) => a - b),
    [0, 1, 2],
  );

  const late = runtimeOf(t);
  late.spawn('pool', (ctx) => sleep(60_000, ctx.signal));
  const first = late.stop({ drain_ms: 60_000 });
  const began_ms = performance.now();
  const second = late.stop({ drain_ms: 0 });
  assert.deepEqual(await first, { aborted: 3, stuck: 0 });
  assert.deepEqual(await second, await first);
  assert.ok(performance.now() - began_ms < 5000);
});

test('stop refuses new work; close answers queued work and closes every channel', async (t) => {
  const runtime = runtimeOf(t);
  const queue = runtime.workQueue('work');
  const waiting = queue.submit('get', runtime.deadline('read'), () => Promise.resolve());
  const repair = runtime.mpsc<number>('repair');
  const shutdown = runtime.watch('shutdown', false);
  const report = await runtime.stop({ drain_ms: 10 });
  await assert.rejects(
    queue.submit('get', runtime.deadline('read'), () => Promise.resolve()),
    (error) => isRonError(error, 'draining'),
  );
  assert.deepEqual(report, { aborted: 0, stuck: 0 });
  assert.equal(repair.trySend(1), 'ok', 'tasks may still send while they end');
  runtime.close();
  runtime.close();
  await assert.rejects(waiting, (error) => isRonError(error, 'draining'));
  assert.equal(repair.trySend(1), 'closed');
  assert.throws(() => shutdown.set(true), /closed/);
});

test('the names are the ones that operators know from every service', async (t) => {
  const runtime = runtimeOf(t);
  const names = new Set(runtime.metrics.names());
  for (const name of [
    'queue_depth',
    'queue_dropped_total',
    'busy_rejections_total',
    'tasks_spawned_total',
    'tasks_aborted_total',
    'tasks_canceled_total',
    'io_timeouts_total',
    'backoff_retries_total',
    'bus_lagged_total',
    'breaker_state',
    'breaker_open_total',
    'rejected_total',
  ]) {
    assert.ok(names.has(name), name);
  }
});

test('breakers and queues that the service builds: declared numbers, no metric of the runtime, one busy series', async (t) => {
  const own = declareConcurrency({
    service: 'index',
    busy_labels: ['route'],
    channels: {
      work: { kind: 'work', capacity: 1, lanes: ['/resolve'], from: 'listener', to: 'pool' },
      waiters: {
        kind: 'own',
        label: '/resolve',
        capacity: 3,
        policy: 'reject new',
        overflow: '429',
        metric: 'busy_rejections_total{route}',
        from: 'listener',
        to: 'pool',
      },
    },
    tasks: {},
    locks: {},
    deadlines: {},
    breakers: {
      peers: {
        error_window_ms: 1000,
        trip_threshold: 0.5,
        calls_min: 1,
        cooldown_ms: 1,
        half_open_probes: 1,
        is_own: true,
        guards: 'peers',
      },
    },
    retries: { request: { policy: 'index', idempotent_because: 'it reads' } },
  });
  const { log } = runtimeOf(t);
  const metrics = new Metrics('index');
  const runtime = new ServiceRuntime(own, { metrics, log });
  t.after(() => runtime.stop({ drain_ms: 0 }));
  const work = runtime.workQueue('work');
  runtime.own('waiters', (capacity) => ({ depth: 0, busy_total: capacity, close: () => undefined }));
  const deadline = Deadline.after('read', 60_000);
  const first = work.submit('/resolve', deadline, () => Promise.resolve());
  await assert.rejects(
    work.submit('/resolve', deadline, () => Promise.resolve()),
    { code: 'busy' },
  );
  runtime.retryCounter('request')('ok');
  const text = await metrics.text();
  assert.match(text, /^backoff_retries_total\{op="request"\} 1$/m);
  assert.match(text, /^busy_rejections_total\{route="\/resolve"\} 4$/m);
  assert.doesNotMatch(text, /breaker_state/);
  assert.equal(runtime.breakerKind('peers').error_window_ms, 1000);
  assert.throws(() => runtime.breaker('peers'), /use breakerKind/);
  assert.deepEqual(runtime.unbuilt(), []);
  runtime.close();
  await assert.rejects(first, { code: 'draining' });
});
