/** Calls to an upstream: when they end, their errors, and the samples that they leave. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { AnswerError } from '@ron/client';
import { Breaker, Brownout, Deadline, NEVER, RonError, sleep } from '@ron/kernel';
import { VirtualSched } from '@ron/kernel/testing';
import { concurrency } from '../concurrency.ts';
import { brownoutLimits } from './open-upstreams.ts';
import { Upstream } from './upstream.ts';

const LIMITS = brownoutLimits({ error_rate: 0.01, window: 300_000, p95: 500, dwell: 30_000 });
const BUDGET_MS = 1000;
const unreachable = (): RonError => new RonError('unreachable', 'storage cannot be reached');

interface Bench {
  readonly clock: VirtualSched;
  readonly upstream: Upstream;
  /** Latency and outcome of each sample. */
  readonly samples: (readonly [number, string])[];
  readonly verdicts: string[];
  readonly connect_timeouts: () => number;
}

/** An upstream that notes its samples, on a clock of its own. */
async function withUpstream(use: (bench: Bench) => Promise<void>): Promise<void> {
  const clock = new VirtualSched();
  await clock.during(async () => {
    const samples: Bench['samples'] = [];
    const verdicts: string[] = [];
    const { guards: _, ...numbers } = concurrency.breakers.upstreams;
    const breaker = new Breaker('storage', { ...numbers, onChange: (_target, state) => void verdicts.push(state) });
    const state = new Brownout(LIMITS);
    const record = state.record.bind(state);
    state.record = (latency_ms, isError) => {
      samples.push([latency_ms, isError ? 'error' : 'ok']);
      record(latency_ms, isError);
    };
    let connect_timeouts = 0;
    const upstream = new Upstream({
      name: 'storage',
      breaker,
      brownout: { state, limits: LIMITS, manual: { mode: 'auto' } },
      slow_ms: LIMITS.latency.enter_ms,
      onConnectTimeout: () => void (connect_timeouts += 1),
    });
    await use({ clock, upstream, samples, verdicts, connect_timeouts: () => connect_timeouts });
  });
}

const within = (budget_ms = BUDGET_MS, signal = NEVER): Deadline => Deadline.after('request', budget_ms, { signal });
const fail = (error: unknown) => async (): Promise<never> => {
  throw error;
};

test('an answer is a sample with its latency', () =>
  withUpstream(async ({ clock, upstream, samples }) => {
    const call = upstream.call('put', within(), async (signal) => {
      await sleep(40, signal);
      return 'stored';
    });
    await clock.advance(40);
    assert.equal(await call, 'stored');
    assert.deepEqual(samples, [[40, 'ok']]);
  }));

test('[interop I-4] a silent upstream is 504 with the operation and the duration, and an error', () =>
  withUpstream(async ({ clock, upstream, samples }) => {
    const call = assert.rejects(
      upstream.call('put', within(), () => new Promise(() => undefined)),
      {
        code: 'timeout',
        status: 504,
        reason: 'DOWNSTREAM_UNAVAILABLE',
        details: { upstream: 'storage', op: 'put', duration_ms: BUDGET_MS },
      },
    );
    await clock.advance(BUDGET_MS);
    await call;
    assert.deepEqual(samples, [[BUDGET_MS, 'error']]);
  }));

test('a failure of the upstream is 503 with the reason, an error, and quotes no message of it', () =>
  withUpstream(async ({ upstream, samples }) => {
    const failures: readonly (readonly [Error, string])[] = [
      [unreachable(), 'it is unreachable'],
      [new AnswerError('internal', '/srv/secret', { op: 'put', http_status: 500 }), 'it answered 500 (internal)'],
      [new AnswerError('busy', 'full', { op: 'put', http_status: 429 }), 'it answered 429 (busy)'],
      [new RonError('integrity', 'not JSON'), 'its answer is malformed'],
    ];
    for (const [error, cause] of failures)
      await assert.rejects(upstream.call('put', within(), fail(error)), {
        code: 'not_ready',
        status: 503,
        reason: 'DOWNSTREAM_UNAVAILABLE',
        message: `storage failed put: ${cause}`,
        cause: error,
      });
    assert.deepEqual(
      samples,
      failures.map(() => [0, 'error']),
    );
  }));

test('a refusal of the request reaches the caller as it is, and counts as an answer', () =>
  withUpstream(async ({ upstream, samples }) => {
    const refusal = new AnswerError('storage_full', 'no room', { op: 'put', http_status: 507 });
    const thrown = await upstream.call('put', within(), fail(refusal)).catch((error: unknown) => error);
    assert.equal(thrown, refusal);
    assert.deepEqual(samples, [[0, 'ok']]);
  }));

test('[interop I-5] a caller that gives up gives no sample and no failure to the breaker, however often', () =>
  withUpstream(async ({ clock, upstream, samples, verdicts }) => {
    for (let at = 0; at < 20; at++) {
      const client = new AbortController();
      const gone = new Error('the client has left');
      const call = assert.rejects(
        upstream.call('put', within(BUDGET_MS, client.signal), (signal) => sleep(5000, signal)),
        gone,
      );
      await clock.advance(900);
      client.abort(gone);
      await call;
    }
    assert.deepEqual([samples, verdicts, upstream.isReady], [[], [], true]);
  }));

test('a deadline counts if the call had half of its budget or was slow, not if it began late', () =>
  withUpstream(async ({ clock, upstream, samples }) => {
    for (const [budget_ms, late_ms, isCounted] of [
      [2000, 1500, true],
      [2000, 1501, false],
      [400, 200, true],
      [400, 201, false],
      [400, 400, false],
    ] as const) {
      samples.length = 0;
      const deadline = within(budget_ms);
      await clock.advance(late_ms);
      const call = assert.rejects(
        upstream.call('put', deadline, (signal) => sleep(5000, signal)),
        { code: 'timeout', reason: 'DOWNSTREAM_UNAVAILABLE' },
      );
      await clock.advance(budget_ms - late_ms);
      await call;
      assert.equal(samples.length, isCounted ? 1 : 0, `${late_ms} ms of ${budget_ms} ms had passed`);
      await clock.advance(10_000);
    }
  }));

test('an open breaker refuses with 503, the reason and a wait, makes no call and takes no sample', () =>
  withUpstream(async ({ clock, upstream, samples }) => {
    for (let at = 0; at < 5; at++) {
      assert.equal(upstream.isReady, true, `${at} failures`);
      await assert.rejects(upstream.call('put', within(), fail(unreachable())));
    }
    assert.deepEqual([upstream.isReady, upstream.canTry], [false, false]);
    assert.equal(upstream.problem, 'the breaker for storage is open');
    let calls = 0;
    const count = async (): Promise<number> => (calls += 1);
    await assert.rejects(upstream.call('put', within(), count), {
      code: 'breaker_open',
      reason: 'DOWNSTREAM_UNAVAILABLE',
      retry_after_ms: 2000,
    });
    assert.deepEqual([calls, samples.length], [0, 5]);
    await clock.advance(2000);
    assert.equal(upstream.isReady, true, 'the cooldown is over');
    assert.equal(await upstream.call('put', within(), count), 1);
    assert.equal(upstream.problem, undefined);
  }));

test('a stream closes a half-open breaker with its first bytes, though it lasts longer than the cooldown', () =>
  withUpstream(async ({ clock, upstream, verdicts }) => {
    for (let at = 0; at < 5; at++) await assert.rejects(upstream.call('put', within(), fail(unreachable())));
    await clock.advance(2000);
    using stream = upstream.begin('put');
    assert.equal(upstream.problem, 'the breaker for storage is half_open');
    stream.progress();
    await clock.advance(60_000);
    assert.equal(upstream.problem, undefined);
    stream.end();
    assert.deepEqual(verdicts, ['open', 'half_open', 'closed']);
  }));

test('the latency of a stream runs from its last byte to the head of the answer', () =>
  withUpstream(async ({ clock, upstream, samples }) => {
    using stream = upstream.begin('put');
    await clock.advance(50_000);
    stream.restart();
    await clock.advance(30);
    stream.answered();
    await clock.advance(7000);
    stream.end();
    assert.deepEqual(samples, [[30, 'ok']]);
  }));

test('a stream reports once, and an abandoned one gives its permit back without a sample', () =>
  withUpstream(async ({ clock, upstream, samples }) => {
    const ended = upstream.begin('put');
    ended.end();
    ended.fail(unreachable());
    ended[Symbol.dispose]();
    assert.deepEqual(samples, [[0, 'ok']]);
    for (let at = 0; at < 4; at++) upstream.begin('put').fail(unreachable());
    assert.equal(upstream.canTry, false);
    await clock.advance(2000);
    for (let at = 0; at < 3; at++) upstream.begin('put')[Symbol.dispose]();
    assert.deepEqual([samples.length, upstream.problem], [5, 'the breaker for storage is half_open']);
  }));

test('a probe gives a sample, and neither waits for the breaker nor closes it', () =>
  withUpstream(async ({ upstream, samples, verdicts }) => {
    for (let at = 0; at < 5; at++) await assert.rejects(upstream.call('put', within(), fail(unreachable())));
    await upstream.probe(within(), () => Promise.resolve());
    await upstream.probe(within(), fail(unreachable()));
    assert.deepEqual(samples.slice(5), [
      [0, 'ok'],
      [0, 'error'],
    ]);
    assert.deepEqual([verdicts, upstream.sampled_total], [['open'], 5]);
  }));

test('a connection that is not established in time is counted', () =>
  withUpstream(async ({ upstream, connect_timeouts }) => {
    const error = new RonError('unreachable', '', { details: { system_code: 'ETIMEDOUT' } });
    await assert.rejects(upstream.call('put', within(), fail(error)));
    await assert.rejects(upstream.call('put', within(), fail(unreachable())));
    assert.equal(connect_timeouts(), 1);
  }));

test('an upstream without a URL refuses with the key to set', () => {
  const { guards: _, ...numbers } = concurrency.breakers.upstreams;
  const missing = 'auth.kms_url is not set';
  const upstream = new Upstream({ name: 'kms', breaker: new Breaker('kms', numbers), slow_ms: 500, missing });
  assert.throws(() => upstream.begin('sign'), {
    code: 'not_ready',
    reason: 'DOWNSTREAM_UNAVAILABLE',
    message: missing,
  });
  assert.deepEqual([upstream.isReady, upstream.canTry, upstream.problem], [false, false, missing]);
});

test('a connection that the proxy lost is unreachable, and an answer that it refused is malformed', () =>
  withUpstream(async ({ upstream }) => {
    const cases = [
      [Object.assign(new Error('connect'), { code: 'ECONNREFUSED' }), /storage failed get: it is unreachable/],
      [Object.assign(new Error('connect'), { code: 'ENOENT' }), /storage failed get: it is unreachable/],
      [Object.assign(new Error('parse'), { code: 'HPE_INVALID_CONSTANT' }), /its answer is malformed/],
      [undefined, /its answer is malformed/],
    ] as const;
    for (const [cause, message] of cases) {
      const broken = new RonError('bad_gateway', 'the upstream closed the connection', { cause });
      const call = upstream.begin('get');
      const error = call.fail(broken) as RonError;
      assert.equal(error.code, 'not_ready');
      assert.match(error.message, message);
    }
  }));
