import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createLog } from '@ron/telemetry';
import { isRonError } from '@ron/kernel';
import type { Ingress } from '@ron/ingress';
import { serviceOf } from './stop.ts';

/** A service whose listener and tasks stop at once. */
function setUp(close: () => Promise<void>, close_ms = 20) {
  const ingress = {
    url: 'http://127.0.0.1:1',
    beginDrain: () => undefined,
    drained: async () => true,
    close: async () => ({ aborted: 0 }),
  } as unknown as Ingress;
  const runtime = { stop: async () => ({ aborted: [] }) as never };
  const log = createLog({ service: 'test', level: 'fatal', sink: { write: () => undefined } });
  return serviceOf({ ingress, runtime, drain_ms: () => 100, log, close, close_ms });
}

// Without the bound it would wait for ever: then the test says so instead of hanging.
const within = { timeout: 10_000 };

test('what does not close holds up neither a drain nor an abort beyond its time, and is told', within, async () => {
  const service = setUp(() => new Promise(() => undefined));
  const isLate = (error: unknown): boolean => isRonError(error, 'timeout');
  await assert.rejects(service.drain(), isLate);
  await assert.rejects(service.abort(), isLate, 'who comes second learns the same');
});

test('what closes in time is closed once, and how it failed is told', async () => {
  let count = 0;
  const service = setUp(async () => void (count += 1));
  await service.drain();
  await service.abort();
  assert.equal(count, 1);
  const failing = setUp(() => Promise.reject(new Error('the disk is gone')));
  await assert.rejects(failing.drain(), /the disk is gone/);
});
