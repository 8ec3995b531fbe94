import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { RonError } from '../errors.ts';
import { isTimeoutOrUnavailable, isTransient, jittered, liveFill, POLICIES, type RetryPolicy } from './retry-policy.ts';
import { VirtualSched } from '../virtual-sched.ts';

/** The shortest and the longest wait before each of the first retries. */
async function ranges(policy: RetryPolicy, retries: number): Promise<[number, number][]> {
  const clock = new VirtualSched();
  return clock.during(() =>
    Array.from({ length: retries }, (_, attempt): [number, number] => {
      clock.chances = [0];
      const least_ms = policy.backoff_ms(attempt);
      clock.chances = [1];
      return [least_ms, policy.backoff_ms(attempt)];
    }),
  );
}

test('rpc: 50-100 ms, 200-400 ms, 800-1600 ms, never above 2 s; 3 tries', async () => {
  assert.equal(POLICIES.rpc.tries_max, 3);
  assert.deepEqual(await ranges(POLICIES.rpc, 5), [
    [50, 100],
    [200, 400],
    [800, 1600],
    [2000, 2000],
    [2000, 2000],
  ]);
});

test('kms: 50-100 ms up to 1 s; 2 tries', async () => {
  assert.equal(POLICIES.kms.tries_max, 2);
  assert.deepEqual(await ranges(POLICIES.kms, 3), [
    [50, 100],
    [200, 400],
    [800, 1000],
  ]);
});

test('index: 50-100 ms each time; 3 tries; transient and no-route errors only', async () => {
  assert.equal(POLICIES.index.tries_max, 3);
  assert.deepEqual(await ranges(POLICIES.index, 3), [
    [50, 100],
    [50, 100],
    [50, 100],
  ]);
  assert.equal(isTransient(new RonError('no_route', 'unknown')), true);
});

test('live fill: min(800, 50 x 2^n) + U[0, 50]; 3 tries; timeout, 503 and 504 only', async () => {
  assert.equal(POLICIES.liveFill.tries_max, 3);
  assert.deepEqual(await ranges(POLICIES.liveFill, 6), [
    [50, 100],
    [100, 150],
    [200, 250],
    [400, 450],
    [800, 850],
    [800, 850],
  ]);
  assert.equal(POLICIES.liveFill.isTransient, isTimeoutOrUnavailable);
  const set = liveFill({ base_ms: 10, max_ms: 30, tries_max: 5, jitter: false });
  assert.equal(set.tries_max, 5);
  assert.deepEqual(await ranges(set, 3), [
    [10, 10],
    [20, 20],
    [30, 30],
  ]);
});

test('property: a jittered wait lies in its range and below its cap', async () => {
  const all = fc.record({
    chance: fc.double({ min: 0, max: 0.999, noNaN: true }),
    attempt: fc.nat(40),
    cap_ms: fc.integer({ min: 100, max: 5000 }),
    factor: fc.integer({ min: 1, max: 4 }),
  });
  await fc.assert(
    fc.asyncProperty(all, async ({ chance, attempt, cap_ms, factor }) => {
      const clock = new VirtualSched();
      clock.chances = [chance];
      const wait_ms = await clock.during(() => jittered({ tries_max: 3, cap_ms, factor }).backoff_ms(attempt));
      assert.ok(wait_ms <= cap_ms);
      assert.ok(wait_ms === cap_ms || (wait_ms >= 50 * factor ** attempt && wait_ms < 100 * factor ** attempt));
    }),
  );
});

const withCode = (code: string, cause?: unknown): Error => Object.assign(new Error(code, { cause }), { code });

test('retryable errors of the error table and network failures are transient', () => {
  const transient = [
    new RonError('busy', ''),
    new RonError('timeout', ''),
    withCode('ECONNRESET'),
    withCode('ETIMEDOUT'),
  ];
  const permanent = [
    new RonError('not_found', ''),
    new RonError('canceled', ''),
    new DOMException('', 'AbortError'),
    withCode('ENOENT'),
    new Error('defect'),
    'ECONNRESET',
    undefined,
  ];
  for (const error of transient) assert.equal(isTransient(error), true, String(error));
  for (const error of permanent) assert.equal(isTransient(error), false, String(error));
  assert.equal(isTransient(new TypeError('fetch failed', { cause: withCode('ECONNREFUSED') })), true);
});

test('a live fill is tried again after timeouts, 503 and 504 and after nothing else', () => {
  const upstream = (status: number): Error => Object.assign(new Error('upstream'), { status });
  const again = [new RonError('timeout', ''), upstream(503), upstream(504), withCode('UND_ERR_HEADERS_TIMEOUT')];
  const enough = [upstream(500), upstream(502), upstream(404), new RonError('busy', ''), withCode('ECONNRESET'), 'x'];
  for (const error of again) assert.equal(isTimeoutOrUnavailable(error), true, String(error));
  for (const error of enough) assert.equal(isTimeoutOrUnavailable(error), false, String(error));
  assert.equal(isTimeoutOrUnavailable(new RonError('canceled', 'a 503, but on purpose')), false);
});
