import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isRonError } from '@ron/kernel';
import { createLog } from '@ron/telemetry';
import { stopOf, type Stop, type StopInit } from './stop.ts';

interface Bench {
  readonly stop: Stop;
  /** The steps in the order in which they began. */
  readonly steps: string[];
  readonly lines: string[];
}

/** A listener and tasks that stop at once, unless a test replaces a step. */
function bench(init: Partial<StopInit> = {}): Bench {
  const steps: string[] = [];
  const lines: string[] = [];
  const log = createLog({ service: 'test', level: 'info', sink: { write: (line: string) => lines.push(line) } });
  const stop = stopOf({
    ingress: {
      beginDrain: () => void steps.push('refuse work'),
      drained: async () => steps.push('requests answered') > 0,
      close: async () => {
        steps.push('answers cut');
        return { aborted: 0 };
      },
    },
    runtime: {
      stop: async ({ drain_ms }) => {
        steps.push(drain_ms === 0 ? 'tasks aborted' : 'tasks stopped');
        return { aborted: 0, stuck: 0 };
      },
      close: () => void steps.push('channels closed'),
    },
    drain_ms: () => 100,
    log,
    begin: () => void steps.push('begin'),
    afterRequests: () => void steps.push('after requests'),
    flush: async () => void steps.push('flush'),
    flush_ms: 20,
    close: async () => void steps.push('close'),
    close_ms: 20,
    ...init,
  });
  return { stop, steps, lines };
}

const forever = (): Promise<void> => new Promise(() => undefined);
// Without the bound it would wait indefinitely: then the test fails instead of hanging.
const within = { timeout: 10_000 };

test('a drain takes its steps in order: requests before tasks, tasks before the flush, the flush before resources', async () => {
  const { stop, steps } = bench();
  await stop.drain();
  assert.deepEqual(steps, [
    'begin',
    'refuse work',
    'requests answered',
    'after requests',
    'tasks stopped',
    'flush',
    'channels closed',
    'answers cut',
    'close',
  ]);
});

test('an abort takes the same steps without waiting for requests and tasks', async () => {
  const { stop, steps } = bench();
  await stop.abort();
  assert.deepEqual(steps, [
    'begin',
    'answers cut',
    'after requests',
    'tasks aborted',
    'flush',
    'channels closed',
    'close',
  ]);
});

test('an abort during a drain ends its tasks; begin, flush and close still run once', async () => {
  const tasks = Promise.withResolvers<{ aborted: number; stuck: number }>();
  const { stop, steps } = bench({
    runtime: {
      stop: async ({ drain_ms }) => {
        if (drain_ms === 0) tasks.resolve({ aborted: 2, stuck: 0 });
        return await tasks.promise;
      },
      close: () => undefined,
    },
  });
  const drain = stop.drain();
  await stop.abort();
  await drain;
  for (const step of ['begin', 'flush', 'close']) {
    assert.equal(steps.filter((each) => each === step).length, 1, step);
  }
});

test('a flush that hangs or fails is logged and does not keep resources open', within, async () => {
  for (const [flush, message] of [
    [forever, /failed to flush before closing/],
    [() => Promise.reject(new Error('the disk is gone')), /the disk is gone/],
  ] as const) {
    const { stop, steps, lines } = bench({ flush });
    await stop.drain();
    assert.deepEqual(steps.slice(-3), ['channels closed', 'answers cut', 'close']);
    assert.match(lines.join(''), message);
  }
});

test(
  'a resource that does not close delays neither a drain nor an abort beyond its time, and is reported',
  within,
  async () => {
    // [storage I-11] [kms I-11] [edge I-11] [interop I-11]
    const { stop } = bench({ close: forever });
    const isLate = (error: unknown): boolean => isRonError(error, 'timeout');
    await assert.rejects(stop.drain(), isLate);
    await assert.rejects(stop.abort(), isLate, 'the second caller gets the same result');
  },
);

test('resources are closed once, and a failure to close rejects the stop', async () => {
  const { stop, steps } = bench();
  await stop.drain();
  await stop.abort();
  assert.equal(steps.filter((step) => step === 'close').length, 1);
  const failing = bench({ close: () => Promise.reject(new Error('the disk is gone')) });
  await assert.rejects(failing.stop.drain(), /the disk is gone/);
});
