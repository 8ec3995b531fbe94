import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { test } from 'node:test';
import { isRonError, RonError } from '../errors.ts';
import { sched, sleep } from '../sched.ts';
import { Supervisor, type SupervisorEvent, type TaskContext } from './supervisor.ts';
import { VirtualSched } from '../virtual-sched.ts';

const crash = (): Promise<void> => Promise.reject(new Error('boom'));
const untilStopping = (ctx: TaskContext): Promise<void> => until(ctx.stopping);
const untilAborted = (ctx: TaskContext): Promise<void> => until(ctx.signal);
const forever = (): Promise<void> => new Promise(() => {});

function until(signal: AbortSignal): Promise<void> {
  if (signal.aborted) return Promise.resolve();
  return new Promise((resolve) => signal.addEventListener('abort', () => resolve(), { once: true }));
}

const only = (supervisor: Supervisor, kind: string) => supervisor.totals().find((totals) => totals.kind === kind)!;
const stateOf = (supervisor: Supervisor, kind: string) =>
  supervisor.health().find((health) => health.kind === kind)?.state;

test('a crashed task restarts after 100 ms, then twice as long each time, up to 5 s', async () => {
  const time = new VirtualSched();
  time.chances = [0];
  await time.during(async () => {
    const starts: number[] = [];
    const supervisor = new Supervisor({ restarts_max: 9 });
    supervisor.spawn('worker', { criticality: 'important' }, () => {
      starts.push(Math.round(sched.now_ms()));
      return crash();
    });
    await time.advance(30_000);
    assert.deepEqual(starts, [0, 100, 300, 700, 1500, 3100, 6300, 9633, 12_967, 16_300]);
    assert.equal(stateOf(supervisor, 'worker'), 'failed');
    assert.equal(only(supervisor, 'worker').restarted_total, 9);
    assert.equal(only(supervisor, 'worker').crashed_total, 10);
    assert.deepEqual(time.timers, []);
  });
});

test('jitter adds up to half of the backoff and never goes beyond 5 s', async () => {
  const time = new VirtualSched();
  time.chances = [0.999];
  await time.during(async () => {
    const delays: number[] = [];
    const log = (event: SupervisorEvent): void => void delays.push(event.restart_ms ?? -1);
    const supervisor = new Supervisor({ restarts_max: 7, log });
    supervisor.spawn('worker', { criticality: 'optional' }, crash);
    await time.advance(30_000);
    const expected = [100, 200, 400, 800, 1600, 3200, 5000 / 1.5].map((base_ms) => base_ms * 1.4995);
    assert.deepEqual(
      delays.map((delay_ms) => Math.round(delay_ms)),
      [...expected.map((delay_ms) => Math.round(delay_ms)), -1],
    );
    assert.ok(expected.every((delay_ms) => delay_ms < 5000));
  });
});

test('a critical task that crashes more than restarts_max times within the window is fatal, and that is reported once', async () => {
  const time = new VirtualSched();
  await time.during(async () => {
    const fatal: unknown[] = [];
    const onFatal = (kind: string, error: unknown): void => void fatal.push([kind, (error as Error).message]);
    const supervisor = new Supervisor({ restarts_max: 2, onFatal });
    supervisor.spawn('listener', { criticality: 'critical' }, crash);
    supervisor.spawn('appender', { criticality: 'critical', restarts_max: 3 }, crash);
    await time.advance(60_000);
    assert.deepEqual(fatal, [['listener', 'boom']]);
    assert.equal(supervisor.fatal?.kind, 'listener');
    assert.equal(stateOf(supervisor, 'listener'), 'failed');
    assert.equal(only(supervisor, 'listener').spawned_total, 3);
    assert.equal(only(supervisor, 'appender').spawned_total, 4);
    assert.match(supervisor.health()[0]!.last_error!, /boom/);
  });
});

test('an important task that keeps crashing stays down without being fatal', async () => {
  const time = new VirtualSched();
  await time.during(async () => {
    const supervisor = new Supervisor({ onFatal: () => assert.fail('not fatal') });
    supervisor.spawn('janitor', { criticality: 'important' }, crash);
    await time.advance(60_000);
    assert.equal(stateOf(supervisor, 'janitor'), 'failed');
    assert.equal(supervisor.fatal, undefined);
    assert.equal(only(supervisor, 'janitor').spawned_total, 6);
  });
});

test('crashes that are further apart than the window never add up', async () => {
  const time = new VirtualSched();
  await time.during(async () => {
    const supervisor = new Supervisor({ restarts_max: 1, window_ms: 1000 });
    supervisor.spawn('worker', { criticality: 'critical' }, async () => {
      await sleep(1000, new AbortController().signal);
      throw new Error('boom');
    });
    await time.advance(100_000);
    assert.equal(supervisor.fatal, undefined);
    assert.ok(only(supervisor, 'worker').crashed_total > 80);
  });
});

test('a pool may lose each of its instances without adding their crashes up', async () => {
  const time = new VirtualSched();
  await time.during(async () => {
    const supervisor = new Supervisor({ restarts_max: 2 });
    supervisor.spawn('worker', { criticality: 'critical', count: 8 }, untilAborted);
    for (let index = 0; index < 8; index++) supervisor.kill('worker', index);
    await time.advance(1000);
    assert.equal(supervisor.fatal, undefined);
    assert.equal(supervisor.health()[0]!.live, 8);
    assert.equal(only(supervisor, 'worker').restarted_total, 8);
  });
});

test('an important task may return; a critical one that returns before the stop has crashed', async () => {
  const time = new VirtualSched();
  await time.during(async () => {
    const supervisor = new Supervisor();
    supervisor.spawn('warmup', { criticality: 'optional' }, () => Promise.resolve());
    supervisor.spawn('listener', { criticality: 'critical' }, () => Promise.resolve());
    await time.advance(60_000);
    assert.equal(stateOf(supervisor, 'warmup'), 'done');
    assert.equal(only(supervisor, 'warmup').crashed_total, 0);
    assert.match((supervisor.fatal!.error as Error).message, /returned before the stop/);
  });
});

test('kill crashes one instance: its signal aborts with the reason, and it comes back', async () => {
  const time = new VirtualSched();
  await time.during(async () => {
    const ended: unknown[] = [];
    const supervisor = new Supervisor();
    supervisor.spawn('worker', { criticality: 'important', count: 2 }, async (ctx) => {
      await untilAborted(ctx);
      ended.push([ctx.index, (ctx.signal.reason as RonError).code]);
    });
    supervisor.kill('worker', 1);
    supervisor.kill('worker', 1);
    await time.settle();
    assert.deepEqual(ended, [[1, 'canceled']]);
    assert.equal(stateOf(supervisor, 'worker'), 'restarting');
    await time.advance(200);
    assert.equal(stateOf(supervisor, 'worker'), 'running');
    assert.equal(only(supervisor, 'worker').crashed_total, 1);
    assert.throws(() => supervisor.kill('worker', 2), /worker#2/);
    assert.throws(() => supervisor.kill('nobody'), /nobody/);
  });
});

test('stop asks first: tasks that obey are counted as canceled, none as aborted', async () => {
  const time = new VirtualSched();
  await time.during(async () => {
    const supervisor = new Supervisor();
    supervisor.spawn('worker', { criticality: 'critical', count: 3 }, untilStopping);
    const finishing = supervisor.run('request', async (ctx) => {
      await until(ctx.stopping);
      await sleep(50, ctx.signal);
      return 'finished';
    });
    const stopping = supervisor.stop({ drain_ms: 1000 });
    await time.advance(49);
    assert.equal(supervisor.live, 1);
    await time.advance(1);
    // [storage I-8] [kms I-8] [index I-8] [edge I-8] [interop I-8]
    assert.deepEqual(await stopping, { aborted: 0, stuck: 0 });
    assert.equal(await finishing, 'finished');
    assert.equal(only(supervisor, 'worker').canceled_total, 3);
    assert.equal(stateOf(supervisor, 'worker'), 'stopped');
    assert.deepEqual(time.timers, []);
  });
});

test('after drain_ms the stragglers are aborted and counted by kind', async () => {
  const time = new VirtualSched();
  await time.during(async () => {
    const supervisor = new Supervisor();
    supervisor.spawn('worker', { criticality: 'critical', count: 2 }, untilAborted);
    supervisor.spawn('janitor', { criticality: 'optional' }, untilStopping);
    const request = supervisor.run('request', (ctx) => sleep(60_000, ctx.signal));
    const stopping = supervisor.stop({ drain_ms: 1000 });
    await time.advance(999);
    assert.equal(supervisor.live, 3);
    await time.advance(1);
    // [storage I-6] [kms I-6] [index I-6] [edge I-6] [interop I-6]
    assert.deepEqual(await stopping, { aborted: 3, stuck: 0 });
    assert.equal(only(supervisor, 'worker').aborted_total, 2);
    assert.equal(only(supervisor, 'request').aborted_total, 1);
    assert.equal(only(supervisor, 'janitor').aborted_total, 0);
    assert.equal(only(supervisor, 'janitor').canceled_total, 1);
    await assert.rejects(request, (error) => isRonError(error, 'canceled'));
    assert.deepEqual(time.timers, []);
  });
});

test('tasks that ignore even the abort do not hold up the stop beyond the grace, and are reported as stuck', async () => {
  const time = new VirtualSched();
  await time.during(async () => {
    const events: string[] = [];
    const log = (event: SupervisorEvent): void => void events.push(`${event.event} ${event.kind}#${event.index}`);
    const supervisor = new Supervisor({ abort_grace_ms: 50, log });
    supervisor.spawn('worker', { criticality: 'critical' }, forever);
    void supervisor.run('request', forever);
    const stopping = supervisor.stop({ drain_ms: 100 });
    let report: unknown;
    void stopping.then((value) => (report = value));
    await time.advance(149);
    assert.equal(report, undefined);
    await time.advance(1);
    assert.deepEqual(report, { aborted: 2, stuck: 2 });
    assert.deepEqual(events, ['aborted request#-1', 'aborted worker#0', 'stuck request#-1', 'stuck worker#0']);
  });
});

test('a second stop shortens the drain', async () => {
  const time = new VirtualSched();
  await time.during(async () => {
    const supervisor = new Supervisor();
    supervisor.spawn('worker', { criticality: 'critical' }, untilAborted);
    const first = supervisor.stop({ drain_ms: 60_000 });
    const longer = supervisor.stop({ drain_ms: 90_000 });
    await time.advance(10);
    assert.equal(supervisor.live, 1);
    const second = supervisor.stop({ drain_ms: 0 });
    await time.settle();
    assert.deepEqual(await first, { aborted: 1, stuck: 0 });
    assert.equal(await first, await second);
    assert.equal(await first, await longer);
    assert.equal(only(supervisor, 'worker').aborted_total, 1);
  });
});

test('a second stop cannot prolong the drain', async () => {
  const time = new VirtualSched();
  await time.during(async () => {
    const supervisor = new Supervisor();
    supervisor.spawn('worker', { criticality: 'critical' }, untilAborted);
    const first = supervisor.stop({ drain_ms: 1000 });
    void supervisor.stop({ drain_ms: 90_000 });
    await time.advance(1000);
    assert.deepEqual(await first, { aborted: 1, stuck: 0 });
  });
});

test('a stop from inside a task that is stopping is the same stop', async () => {
  const time = new VirtualSched();
  await time.during(async () => {
    const supervisor = new Supervisor();
    let inner: Promise<unknown> | undefined;
    supervisor.spawn('worker', { criticality: 'critical' }, (ctx) => {
      ctx.stopping.addEventListener('abort', () => void (inner = supervisor.stop({ drain_ms: 10 })), { once: true });
      return untilStopping(ctx);
    });
    const outer = await supervisor.stop({ drain_ms: 1000 });
    assert.equal(await inner, outer);
  });
});

test('nothing starts once the stop began: no pending restart, no new task', async () => {
  const time = new VirtualSched();
  await time.during(async () => {
    const supervisor = new Supervisor();
    let starts = 0;
    supervisor.spawn('worker', { criticality: 'critical' }, () => {
      starts += 1;
      return crash();
    });
    await time.settle();
    assert.equal(stateOf(supervisor, 'worker'), 'restarting');
    assert.deepEqual(await supervisor.stop({ drain_ms: 1000 }), { aborted: 0, stuck: 0 });
    supervisor.spawn('late', { criticality: 'critical' }, () => assert.fail('it started'));
    await time.advance(10_000);
    assert.equal(starts, 1);
    assert.equal(stateOf(supervisor, 'worker'), 'stopped');
    assert.deepEqual([only(supervisor, 'late').spawned_total, supervisor.live], [0, 0]);
    await assert.rejects(
      supervisor.run('request', () => Promise.resolve()),
      (error) => isRonError(error, 'canceled'),
    );
  });
});

test('work in hand may run a one-shot while draining, and the stop waits for it', async () => {
  const time = new VirtualSched();
  await time.during(async () => {
    const supervisor = new Supervisor();
    const request = supervisor.run('request', async (ctx) => {
      await until(ctx.stopping);
      return supervisor.run('hedge', async (inner) => {
        await sleep(100, inner.signal);
        return 'done';
      });
    });
    const stopping = supervisor.stop({ drain_ms: 1000 });
    await time.advance(100);
    assert.deepEqual(await stopping, { aborted: 0, stuck: 0 });
    assert.equal(await request, 'done');
  });
});

test('a task that throws before its first await, a throwing log and a throwing onFatal do no harm', async () => {
  const time = new VirtualSched();
  await time.during(async () => {
    const fail = (): never => {
      throw new Error('callback');
    };
    const supervisor = new Supervisor({ restarts_max: 0, log: fail, onFatal: fail });
    supervisor.spawn('worker', { criticality: 'critical' }, fail);
    await time.advance(1000);
    assert.equal(supervisor.fatal?.kind, 'worker');
    await assert.rejects(supervisor.run('request', fail), /callback/);
    void supervisor.run('ignored', fail);
    await time.advance(1000);
    assert.equal(supervisor.live, 0);
  });
});

test('a kind is spawned once, and kinds are a bounded set', () => {
  const supervisor = new Supervisor();
  supervisor.spawn('worker', { criticality: 'optional', count: 0 }, crash);
  assert.throws(() => supervisor.spawn('worker', { criticality: 'optional' }, crash), /once/);
  assert.throws(() => {
    for (let index = 0; index < 1000; index++) void supervisor.run(`request ${index}`, () => Promise.resolve());
  }, /fixed set/);
});

test('one-shot tasks leave nothing behind: the heap is flat over 1e6 of them', (t) => {
  // In a process of its own: the test runner's hooks on every promise would dominate the measurement.
  const program = `
    import { Supervisor } from '${new URL('./supervisor.ts', import.meta.url).href}';
    const supervisor = new Supervisor();
    const work = async () => 1;
    const runMany = async (count) => { while (count-- > 0) await supervisor.run('request', work); };
    const heapBytes = () => { gc(); return process.memoryUsage().heapUsed; };
    await runMany(50_000);
    const before_bytes = heapBytes();
    const began_ms = performance.now();
    await runMany(1_000_000);
    const each_us = (performance.now() - began_ms) / 1e3;
    const [{ spawned_total }] = supervisor.totals();
    console.log(JSON.stringify({ grown_bytes: heapBytes() - before_bytes, each_us, spawned_total }));`;
  const flags = ['--expose-gc', '--input-type=module', '--eval'];
  const output = execFileSync(process.execPath, [...flags, program], { encoding: 'utf8' });
  const { grown_bytes, each_us, spawned_total } = JSON.parse(output) as Record<string, number>;
  t.diagnostic(`1e6 one-shots: the heap grew by ${grown_bytes} bytes; ${each_us!.toFixed(2)} us each`);
  assert.equal(spawned_total, 1_050_000);
  assert.ok(grown_bytes! < 256 * 1024, `the heap grew by ${grown_bytes} bytes`);
});
