/** When a brownout begins and ends, by the calls of an upstream and the probes of the sentinel. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Breaker, Brownout, Cell, Deadline, NEVER, RonError, sched, sleep } from '@ron/kernel';
import { VirtualSched } from '@ron/kernel/testing';
import { BROWNOUT_UPSTREAMS, type BrownoutUpstream } from '@ron/proto';
import { concurrency } from '../concurrency.ts';
import type { InteropEvent } from '../events.ts';
import { AUTO, ManualMode } from './manual-mode.ts';
import { brownoutLimits } from './open-upstreams.ts';
import { Sentinel, type WatchedUpstream } from './sentinel.ts';
import { Upstream } from './upstream.ts';

const LIMITS = brownoutLimits({ error_rate: 0.01, window: 300_000, p95: 500, dwell: 30_000 });

interface Calls {
  readonly errors?: number;
  readonly latency_ms?: number;
  readonly to?: BrownoutUpstream;
}

type Probe = (signal: AbortSignal) => Promise<unknown>;

class SentinelBench {
  readonly clock: VirtualSched;
  readonly events: InteropEvent[] = [];
  readonly probes: BrownoutUpstream[] = [];
  /** The answer of every upstream to a probe. */
  answer: Probe = () => Promise.resolve();
  readonly sentinel: Sentinel;
  readonly #manual = new ManualMode(new Cell('policy_meta', 1, { brownout: AUTO }));
  readonly upstreams: Readonly<Record<BrownoutUpstream, WatchedUpstream>>;

  constructor(clock: VirtualSched) {
    this.clock = clock;
    const entries = BROWNOUT_UPSTREAMS.map((name) => [name, this.#watched(name)] as const);
    this.upstreams = Object.fromEntries(entries) as Record<BrownoutUpstream, WatchedUpstream>;
    this.sentinel = new Sentinel({
      upstreams: this.upstreams,
      manual: this.#manual,
      tick_ms: 1000,
      probing: (signal) => Deadline.after('probe', 1000, { signal }),
      events: { publish: (event) => void this.events.push(event) },
    });
  }

  /** `count` calls that take `latency_ms`, of which `errors` fail, within one moment of the clock. */
  async calls(count: number, { errors = 0, latency_ms = 10, to = 'storage' }: Calls = {}): Promise<void> {
    const { upstream } = this.upstreams[to];
    const all = Array.from({ length: count }, (_, at) =>
      upstream
        .call('put', Deadline.after('request', 60_000), async (signal) => {
          await sleep(latency_ms, signal);
          if (at < errors) throw new RonError('unreachable', 'storage is away');
        })
        .catch(() => undefined),
    );
    await this.clock.advance(latency_ms);
    await Promise.all(all);
  }

  async seconds(
    count: number,
    { calls = 0, errors = 0, latency_ms = 10 }: Calls & { readonly calls?: number } = {},
  ): Promise<void> {
    for (let at = 0; at < count; at++) {
      if (calls > 0) await this.calls(calls, { errors, latency_ms });
      const tick = this.sentinel.tick(NEVER);
      await this.clock.advance(calls > 0 ? 1000 - latency_ms : 1000);
      await tick;
    }
  }

  kinds(): string[] {
    return this.events.map((event) => event.kind);
  }

  #watched(name: BrownoutUpstream): WatchedUpstream {
    const { guards: _, ...numbers } = concurrency.breakers.upstreams;
    // The breaker would refuse the calls that these tests count.
    const breaker = new Breaker(name, { ...numbers, calls_min: 1e9 });
    const brownout = { state: new Brownout(LIMITS), limits: LIMITS, manual: this.#manual };
    const probe: Probe = (signal) => {
      this.probes.push(name);
      return this.answer(signal);
    };
    return { upstream: new Upstream({ name, breaker, brownout, slow_ms: LIMITS.latency.enter_ms }), probe };
  }
}

async function withSentinel(use: (bench: SentinelBench) => Promise<void>): Promise<void> {
  const clock = new VirtualSched();
  await clock.during(() => use(new SentinelBench(clock)));
}

test('one percent of errors begins no brownout, one more error does, and four are too few', () =>
  withSentinel(async (bench) => {
    const { sentinel } = bench;
    await bench.calls(4, { errors: 4 });
    await sentinel.tick(NEVER);
    assert.equal(sentinel.sheds('storage'), false);
    await bench.calls(496, { errors: 1 });
    await sentinel.tick(NEVER);
    assert.equal(sentinel.sheds('storage'), false, '5 of 500');
    await bench.calls(99, { errors: 1 });
    await sentinel.tick(NEVER);
    assert.equal(sentinel.sheds('storage'), true, '6 of 599');
    assert.equal(sentinel.problem, '1 % of calls to storage failed (limit 1 %), p95 10 ms (limit 500 ms)');
    assert.deepEqual(bench.events, [{ kind: 'brownout began', upstream: 'storage', problem: sentinel.problem }]);
  }));

test('a p95 of 500 ms over 20 calls begins a brownout; 19 calls and a p95 below do not', () =>
  withSentinel(async (bench) => {
    const { sentinel } = bench;
    await bench.calls(19, { latency_ms: 500, to: 'passport' });
    await bench.calls(40, { latency_ms: 488, to: 'mailbox' });
    await sentinel.tick(NEVER);
    assert.deepEqual(bench.kinds(), []);
    await bench.calls(1, { latency_ms: 500, to: 'passport' });
    await sentinel.tick(NEVER);
    assert.deepEqual([sentinel.sheds('passport'), sentinel.sheds('mailbox')], [true, false]);
  }));

test('slow calls below a twentieth begin no brownout', () =>
  withSentinel(async (bench) => {
    await bench.calls(5, { latency_ms: 900 });
    await bench.calls(95);
    await bench.sentinel.tick(NEVER);
    assert.equal(bench.sentinel.sheds('storage'), false, '5 of 100');
    await bench.calls(1, { latency_ms: 900 });
    await bench.sentinel.tick(NEVER);
    assert.equal(bench.sentinel.sheds('storage'), true, '6 of 101');
  }));

test('`/put` is shed by storage or passport, and not by mailbox', () =>
  withSentinel(async (bench) => {
    await bench.calls(5, { errors: 5, to: 'mailbox' });
    await bench.sentinel.tick(NEVER);
    assert.deepEqual([bench.sentinel.sheds('mailbox'), bench.sentinel.shedsPut], [true, false]);
    await bench.calls(5, { errors: 5, to: 'passport' });
    await bench.sentinel.tick(NEVER);
    assert.equal(bench.sentinel.shedsPut, true);
  }));

test('without traffic, probes end the brownout after 30 s, and no probe is sent before and after it', () =>
  withSentinel(async (bench) => {
    await bench.seconds(3);
    await bench.calls(10, { errors: 10 });
    await bench.seconds(1);
    assert.deepEqual(bench.probes, [], 'the calls of this second are samples');
    const began_ms = sched.now_ms() - 1000;
    while (bench.sentinel.sheds('storage')) {
      await bench.seconds(1);
      assert.ok(sched.now_ms() < 60_000, 'it ends');
    }
    // The evaluation was at the beginning of the last second.
    assert.equal(sched.now_ms() - 1000 - began_ms, 30_000);
    assert.deepEqual(bench.probes, Array(29).fill('storage'));
    await bench.seconds(10);
    assert.equal(bench.probes.length, 29);
    assert.deepEqual(bench.kinds(), ['brownout began', 'brownout ended']);
  }));

const SICK: Readonly<Record<string, Probe>> = {
  unreachable: () => Promise.reject(new RonError('unreachable', 'storage is away')),
  silent: () => new Promise(() => undefined),
  slow: (signal) => sleep(401, signal),
};
for (const [kind, answer] of Object.entries(SICK))
  test(`an upstream whose probes are ${kind} stays in its brownout, and recovers 30 s after the last bad one`, () =>
    withSentinel(async (bench) => {
      await bench.calls(10, { errors: 10 });
      bench.answer = answer;
      await bench.seconds(120);
      assert.equal(bench.sentinel.sheds('storage'), true);
      bench.answer = () => Promise.resolve();
      const healed_ms = sched.now_ms();
      while (bench.sentinel.sheds('storage')) {
        await bench.seconds(1);
        assert.ok(sched.now_ms() < healed_ms + 60_000, 'it ends');
      }
      assert.ok(sched.now_ms() - healed_ms >= 30_000, `${sched.now_ms() - healed_ms} ms`);
      assert.deepEqual(bench.kinds(), ['brownout began', 'brownout ended']);
    }));

test('slow work is not hidden by fast probes: a second with work has no probe', () =>
  withSentinel(async (bench) => {
    await bench.calls(20, { latency_ms: 900 });
    await bench.seconds(60, { calls: 1, latency_ms: 900 });
    assert.equal(bench.sentinel.sheds('storage'), true);
    assert.deepEqual(bench.probes, []);
  }));

test('an upstream that fails work but answers probes is tried again at most once in 30 s', () =>
  withSentinel(async (bench) => {
    const { sentinel } = bench;
    let tried = 0;
    for (let at = 0; at < 300; at++) {
      const isTried = !sentinel.shedsPut;
      if (isTried) tried += 1;
      await bench.seconds(1, isTried ? { calls: 20, latency_ms: 900 } : {});
    }
    assert.ok(tried <= 10, `work was tried in ${tried} of 300 seconds`);
    assert.ok(bench.kinds().length <= 20, `${bench.kinds().length} changes`);
  }));

test('off sheds nothing in a breach, on sheds all, and both end by themselves', () =>
  withSentinel(async (bench) => {
    const { sentinel } = bench;
    await bench.calls(10, { errors: 10 });
    await sentinel.tick(NEVER);
    sentinel.set({ mode: 'off', until_ms: sched.wall_ms() + 5000 });
    assert.deepEqual([sentinel.sheds('storage'), sentinel.problem, sentinel.mode().active], [false, undefined, false]);
    assert.equal(bench.upstreams.storage.upstream.problem, undefined, 'nothing is shed');
    await bench.seconds(6);
    assert.equal(sentinel.sheds('storage'), true, 'the breach has lasted');
    sentinel.set({ mode: 'on', until_ms: sched.wall_ms() + 60_000, why: 'move of the disks' });
    assert.deepEqual(
      BROWNOUT_UPSTREAMS.map((name) => bench.upstreams[name].upstream).map(({ sheds, isReady, canTry }) => [
        sheds,
        isReady,
        canTry,
      ]),
      BROWNOUT_UPSTREAMS.map(() => [true, false, false]),
    );
    assert.match(sentinel.problem!, /^bridges are shed until 20.*Z: move of the disks$/);
    assert.equal(bench.upstreams.passport.upstream.problem, 'an operator set the brownout mode to on');
    await bench.seconds(61);
    assert.deepEqual([sentinel.sheds('mailbox'), sentinel.mode().mode], [false, 'auto']);
    assert.deepEqual(
      bench.events.flatMap((event) => (event.kind === 'brownout set' ? [event.mode] : [])),
      ['off', 'auto', 'on', 'auto'],
    );
  }));

test('the figures stand beside the limits that they are compared with now', () =>
  withSentinel(async (bench) => {
    await bench.calls(10, { errors: 1, latency_ms: 100 });
    await bench.sentinel.tick(NEVER);
    const [storage, mailbox] = bench.sentinel.mode().upstreams;
    assert.deepEqual(
      [storage!.error_rate, storage!.error_rate_limit, storage!.p95_limit_ms, storage!.active],
      [0.1, 0.01, 500, false],
    );
    assert.ok(Math.abs(storage!.p95_ms! - 100) < 3, `${storage!.p95_ms}`);
    assert.deepEqual(['error_rate' in mailbox!, 'p95_ms' in mailbox!], [false, false], 'no calls, no figures');
    await bench.calls(4, { errors: 4 });
    await bench.sentinel.tick(NEVER);
    const [shed] = bench.sentinel.mode().upstreams;
    assert.deepEqual([shed!.error_rate_limit, shed!.p95_limit_ms, shed!.sheds], [0.005, 400, true]);
  }));

test('[interop I-5] the task ends with its stop or a kill, even while probes hang', async () => {
  for (const which of ['stopping', 'signal'] as const)
    await withSentinel(async (bench) => {
      bench.answer = () => new Promise(() => undefined);
      await bench.calls(10, { errors: 10 });
      const stop = new AbortController();
      let ended = false;
      const run = bench.sentinel
        .run({ signal: NEVER, stopping: NEVER, [which]: stop.signal })
        .then(() => (ended = true));
      await bench.clock.advance(1500);
      assert.deepEqual([ended, bench.probes.length], [false, 1]);
      stop.abort();
      await run;
      assert.equal(bench.clock.timers.length, 0);
    });
});
