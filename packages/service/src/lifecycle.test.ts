import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { RonError, sleep } from '@ron/kernel';
import { Lifecycle, type LifecycleState } from './lifecycle.ts';
import { VirtualSched } from '@ron/kernel/testing';

const never = new AbortController().signal;
const forever = (): Promise<void> => new Promise(() => {});

function onVirtualTime(use: (time: VirtualSched) => Promise<void>): () => Promise<void> {
  const time = new VirtualSched();
  return () => time.during(() => use(time));
}

test('the way down: running, draining, stopped, and everybody who watches sees it', async () => {
  const lifecycle = new Lifecycle('svc');
  const seen: LifecycleState[] = [];
  const receiver = lifecycle.watch.subscribe();
  const watching = (async () => {
    while (seen.at(-1) !== 'stopped') seen.push(await receiver.changed(never));
  })();
  assert.equal(lifecycle.state, 'running');
  lifecycle.beginDrain();
  await new Promise(setImmediate);
  lifecycle.drained();
  await watching;
  assert.deepEqual(seen, ['draining', 'stopped']);
  await assert.rejects(receiver.changed(never), (error) => error instanceof RonError && error.code === 'closed');
});

test('the way down through an abort', () => {
  const lifecycle = new Lifecycle('svc');
  lifecycle.beginDrain();
  lifecycle.abort();
  assert.equal(lifecycle.state, 'aborting');
  lifecycle.stopped();
  assert.equal(lifecycle.state, 'stopped');
});

test('illegal steps throw and change nothing; steps that were made already do nothing', () => {
  const calls = ['beginDrain', 'drained', 'abort', 'stopped'] as const;
  const legal: Record<LifecycleState, Partial<Record<(typeof calls)[number], LifecycleState>>> = {
    running: { beginDrain: 'draining' },
    draining: { beginDrain: 'draining', drained: 'stopped', abort: 'aborting' },
    aborting: { beginDrain: 'aborting', abort: 'aborting', stopped: 'stopped' },
    stopped: { beginDrain: 'stopped', drained: 'stopped', abort: 'stopped', stopped: 'stopped' },
  };
  fc.assert(
    fc.property(fc.array(fc.constantFrom(...calls), { maxLength: 8 }), (steps) => {
      const lifecycle = new Lifecycle('svc');
      for (const step of steps) {
        const from = lifecycle.state;
        const to = legal[from][step];
        if (to === undefined) assert.throws(() => lifecycle[step](), RonError);
        else lifecycle[step]();
        assert.equal(lifecycle.state, to ?? from);
      }
    }),
  );
});

test(
  'close hooks run in order, each after the one before has ended',
  onVirtualTime(async (time) => {
    const lifecycle = new Lifecycle('svc');
    const events: string[] = [];
    for (const [name, ms] of [
      ['listener', 30],
      ['workers', 10],
      ['store', 20],
    ] as const) {
      lifecycle.onClose(name, { deadline_ms: 100 }, async (signal) => {
        events.push(`${name} begins ${lifecycle.state}`);
        await sleep(ms, signal);
        events.push(`${name} ends`);
      });
    }
    const closing = lifecycle.close();
    assert.equal(lifecycle.state, 'draining');
    await time.advance(60);
    const report = await closing;
    const expected = ['listener', 'workers', 'store'].flatMap((name) => [`${name} begins draining`, `${name} ends`]);
    assert.deepEqual(events, expected);
    assert.equal(lifecycle.state, 'stopped');
    assert.deepEqual(
      report.hooks.map(({ hook, outcome, took_ms }) => [hook, outcome, took_ms]),
      [
        ['listener', 'closed', 30],
        ['workers', 'closed', 10],
        ['store', 'closed', 20],
      ],
    );
    assert.deepEqual(report.problems, []);
    assert.equal(report.took_ms, 60);
    assert.deepEqual(time.timers, []);
  }),
);

test(
  'a hook that is late is aborted, one that ignores that is left behind, and later ones still get their full time',
  onVirtualTime(async (time) => {
    const lifecycle = new Lifecycle('svc', { abort_grace_ms: 50 });
    const reasons: unknown[] = [];
    lifecycle.onClose('obeys', { deadline_ms: 100 }, async (signal) => {
      await sleep(1000, signal).catch(() => reasons.push(signal.reason));
    });
    lifecycle.onClose('hangs', { deadline_ms: 100 }, forever);
    lifecycle.onClose('fails', { deadline_ms: 100 }, () => {
      throw new Error('disk gone');
    });
    lifecycle.onClose('audit', { deadline_ms: 100 }, (signal) => sleep(90, signal));
    const closing = lifecycle.close();
    await time.advance(99);
    assert.equal(lifecycle.state, 'draining');
    await time.advance(1);
    assert.equal(lifecycle.state, 'aborting');
    await time.advance(240);
    const report = await closing;
    assert.deepEqual(
      report.hooks.map(({ hook, outcome, took_ms }) => [hook, outcome, took_ms]),
      [
        ['obeys', 'late', 100],
        ['hangs', 'stuck', 150],
        ['fails', 'failed', 0],
        ['audit', 'closed', 90],
      ],
    );
    assert.deepEqual(
      report.problems.map(({ hook }) => hook),
      ['obeys', 'hangs', 'fails'],
    );
    assert.match(String(report.problems[2]!.error), /disk gone/);
    assert.ok(reasons[0] instanceof RonError && reasons[0].code === 'timeout' && reasons[0].op === 'obeys');
    assert.equal(lifecycle.state, 'stopped');
    assert.deepEqual(time.timers, []);
  }),
);

test(
  'abort cuts the hook that runs and every later one short, but all of them run',
  onVirtualTime(async (time) => {
    const lifecycle = new Lifecycle('svc', { abort_grace_ms: 50 });
    const ran: string[] = [];
    for (const name of ['first', 'second', 'third']) {
      lifecycle.onClose(name, { deadline_ms: 60_000 }, (signal) => {
        ran.push(`${name} ${signal.aborted}`);
        return name === 'third' ? forever() : sleep(10_000, signal);
      });
    }
    const closing = lifecycle.close();
    await time.advance(10);
    lifecycle.abort();
    lifecycle.abort();
    await time.advance(50);
    const report = await closing;
    assert.deepEqual(ran, ['first false', 'second true', 'third true']);
    assert.deepEqual(
      report.hooks.map(({ outcome, took_ms }) => [outcome, took_ms]),
      [
        ['late', 10],
        ['late', 0],
        ['stuck', 50],
      ],
    );
    assert.deepEqual(time.timers, []);
  }),
);

test(
  'abort also hurries on when a late hook has begun the abort already',
  onVirtualTime(async (time) => {
    const lifecycle = new Lifecycle('svc', { abort_grace_ms: 50 });
    lifecycle.onClose('late', { deadline_ms: 100 }, (signal) => sleep(1000, signal));
    lifecycle.onClose('slow', { deadline_ms: 60_000 }, (signal) => sleep(50_000, signal));
    const closing = lifecycle.close();
    await time.advance(110);
    assert.equal(lifecycle.state, 'aborting');
    lifecycle.abort();
    await time.settle();
    assert.deepEqual(
      (await closing).hooks.map(({ outcome, took_ms }) => [outcome, took_ms]),
      [
        ['late', 100],
        ['late', 10],
      ],
    );
  }),
);

test(
  'abort during the grace of a hook that hangs does not prolong it',
  onVirtualTime(async (time) => {
    const lifecycle = new Lifecycle('svc', { abort_grace_ms: 50 });
    lifecycle.onClose('hangs', { deadline_ms: 100 }, forever);
    const closing = lifecycle.close();
    await time.advance(120);
    lifecycle.abort();
    await time.advance(30);
    assert.deepEqual((await closing).hooks[0]!.took_ms, 150);
  }),
);

test('closing again gives the same report; nothing can be added any more', async () => {
  const lifecycle = new Lifecycle('svc');
  let closed = 0;
  lifecycle.onClose('once', { deadline_ms: 100 }, () => {
    closed += 1;
    // Re-entry from a hook is the same close too.
    void lifecycle.close();
  });
  lifecycle.beginDrain();
  const [first, second] = await Promise.all([lifecycle.close(), lifecycle.close()]);
  assert.equal(first, second);
  await lifecycle[Symbol.asyncDispose]();
  assert.equal(closed, 1);
  assert.throws(() => lifecycle.onClose('late', { deadline_ms: 1 }, () => {}), /before the close/);
  assert.throws(() => new Lifecycle('svc').onClose('none', { deadline_ms: 0 }, () => {}), /positive deadline/);
});
