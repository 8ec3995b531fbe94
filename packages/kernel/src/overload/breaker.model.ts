/** The promises of a half-open Breaker under every schedule of its callers. */
import assert from 'node:assert/strict';
import type { Build } from '@ron/explorer';
import type { Breaker, Permit, Verdict } from './breaker.ts';
import { sleep } from '../sched.ts';

export type BreakerClass = typeof Breaker;

const COOLDOWN_MS = 100;

export interface ProbesInit {
  readonly half_open_probes: number;
  readonly trip_threshold: number;
  readonly callers: number;
  /** How many cooldowns pass, at any moment. */
  readonly cooldowns: number;
  /** Calls that began before the breaker opened and end at any time after. */
  readonly late: number;
}

/** An open breaker cools down; callers come at any moment and each call ends well, badly or without a verdict. */
export function probes(BreakerUnderTest: BreakerClass, init: ProbesInit): Build {
  return (world) => {
    const { half_open_probes, trip_threshold } = init;
    const breaker = new BreakerUnderTest('peer', {
      error_window_ms: 1_000,
      trip_threshold,
      calls_min: 1,
      cooldown_ms: COOLDOWN_MS,
      half_open_probes,
    });
    const signal = new AbortController().signal;
    const inFlight = new Map<Permit, number>();

    const settle = (permit: Permit, verdict: Verdict): void => {
      if (verdict === 'success') permit.success();
      else if (verdict === 'failure') permit.failure();
      else permit.release();
    };
    for (let i = 0; i < init.late; i += 1) {
      const permit = breaker.tryAcquire();
      assert.ok(permit);
      world.task(`late ${i}`, async () => {
        const before = breaker.state;
        const before_ms = world.now_ms();
        settle(permit, world.choose('late verdict', ['success', 'failure', 'none'] as const));
        const after = breaker.state;
        if (world.now_ms() > before_ms) return;
        assert.equal(after, before, 'a call from before the trip changed the state');
      });
    }
    breaker.tryAcquire()?.failure();
    assert.equal(breaker.state, 'open');

    world.task('clock', async () => {
      for (let i = 0; i < init.cooldowns; i += 1) await sleep(COOLDOWN_MS, signal);
    });
    for (let i = 0; i < init.callers; i += 1) {
      world.task(`caller ${i}`, async () => {
        const before = breaker.state;
        const before_ms = world.now_ms();
        const permit = breaker.tryAcquire();
        if (permit === undefined) return;
        // Time may pass between the two readings: then an open breaker may have cooled down.
        const hasCooled = before === 'open' && world.now_ms() > before_ms;
        assert.ok(before !== 'open' || hasCooled, 'an open breaker let a call through');
        if (before === 'half_open' || hasCooled) inFlight.set(permit, world.now_ms());
        await world.io('answer');
        inFlight.delete(permit);
        settle(permit, world.choose('verdict', ['success', 'failure', 'none'] as const));
      });
    }
    return {
      invariant: () => {
        const young = [...inFlight.values()].filter((since_ms) => world.now_ms() - since_ms < COOLDOWN_MS);
        assert.ok(young.length <= half_open_probes, `${young.length} probes in flight`);
      },
      final: () => {
        // No permit is held any more. If the phase is undecided, the probes that are left must decide it.
        for (let i = 0; i < half_open_probes; i += 1) breaker.tryAcquire()?.success();
        assert.notEqual(breaker.state, 'half_open', 'a probe leaked: half-open permanently');
      },
    };
  };
}
