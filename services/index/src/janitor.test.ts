import assert from 'node:assert/strict';
import { test } from 'node:test';
import { untilAborted } from '@ron/kernel';
import { VirtualSched } from '@ron/kernel/testing';
import { runJanitor, type JanitorInit } from './janitor.ts';

interface Bench {
  readonly init: JanitorInit;
  readonly calls: string[];
  readonly problems: unknown[];
}

function bench(enabled: boolean, rows: number[], init: Partial<JanitorInit> = {}): Bench {
  const calls: string[] = [];
  const problems: unknown[] = [];
  return {
    calls,
    problems,
    init: {
      current: { value: { amnesia: { enabled, purge_interval_ms: 500 } } },
      cache: { run: untilAborted, purge: () => void calls.push('cache') },
      store: {
        purgeExpired: async (_now_ms, limit) => {
          calls.push('rows');
          const left = rows.shift();
          if (left === undefined) throw new Error('the disk hangs');
          return Math.min(left, limit);
        },
      },
      onProblem: (error) => void problems.push(error),
      ...init,
    },
  };
}

test('[index I-12] in amnesia expired state is purged every interval, until no row is left', async () => {
  const clock = new VirtualSched();
  await clock.during(async () => {
    const { init, calls, problems } = bench(true, [2500, 1500, 0, 0]);
    const stop = new AbortController();
    const run = runJanitor(init, stop.signal).catch(() => undefined);
    await clock.advance(499);
    assert.deepEqual(calls, []);
    await clock.advance(1);
    assert.deepEqual(calls, ['cache', 'rows', 'rows', 'rows']);
    await clock.advance(500);
    assert.deepEqual(calls.slice(4), ['cache', 'rows']);
    await clock.advance(500);
    assert.deepEqual(problems.map(String), ['Error: the disk hangs'], 'a failure does not end the task');
    stop.abort();
    await run;
    assert.equal(clock.timers.length, 0);
  });
});

test('with a disk it is purged every minute', async () => {
  const clock = new VirtualSched();
  await clock.during(async () => {
    const { init, calls } = bench(false, [0]);
    const stop = new AbortController();
    const run = runJanitor(init, stop.signal).catch(() => undefined);
    await clock.advance(59_999);
    assert.deepEqual(calls, []);
    await clock.advance(1);
    assert.deepEqual(calls, ['cache', 'rows']);
    stop.abort();
    await run;
  });
});

test('[index I-8] if the cache fails, the purge ends with it', async () => {
  const clock = new VirtualSched();
  await clock.during(async () => {
    const failed = Promise.withResolvers<void>();
    const { init } = bench(true, [], { cache: { run: () => failed.promise, purge: () => undefined } });
    const run = runJanitor(init, new AbortController().signal);
    await clock.settle();
    failed.reject(new Error('a defect'));
    await assert.rejects(run, /a defect/);
    assert.equal(clock.timers.length, 0, 'no timer is left');
  });
});
