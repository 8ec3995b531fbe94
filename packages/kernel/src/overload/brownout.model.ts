/** Brownout beside its recorder and its sentinel, with every outcome. The model takes the class for mutants. */
import assert from 'node:assert/strict';
import type { Build } from '@ron/explorer';
import { NEVER } from '../sync/never.ts';
import { sleep } from '../sched.ts';
import type { Brownout } from './brownout.ts';

const SECOND_MS = 1000;
const DWELL_MS = 2 * SECOND_MS;
/** Longer than the explorer lets the clock jump, so that calls do not become too old to begin a brownout. */
const WINDOW_MS = 1e12;

export interface BrownoutModelInit {
  calls: number;
  evaluations: number;
}

interface Call {
  readonly at_ms: number;
  readonly isBad: boolean;
}

/** One bad call enters; each call is good, failed or slow. */
export function brownoutModel(Class: typeof Brownout, init: BrownoutModelInit): Build {
  return (world) => {
    const brownout = new Class({
      errors: { window_ms: WINDOW_MS, enter: 0, leave: 0, errors_min: 1 },
      latency: { window_ms: WINDOW_MS, enter_ms: 500, leave_ms: 400, calls_min: 1, quantile: 1 },
      dwell_ms: DWELL_MS,
    });
    let calls: Call[] = [];
    let changed_ms = 0;
    world.task('client', async () => {
      for (let call = 0; call < init.calls; call++) {
        const result = world.choose('call', ['good', 'failed', 'slow'] as const);
        brownout.record(result === 'slow' ? 600 : 10, result === 'failed');
        calls.push({ at_ms: world.now_ms(), isBad: result !== 'good' });
        await sleep(SECOND_MS, NEVER);
      }
    });
    world.task('sentinel', async () => {
      for (let evaluation = 0; evaluation < init.evaluations; evaluation++) {
        const wasActive = brownout.isActive;
        const hasBad = calls.some(({ isBad }) => isBad);
        const isActive = brownout.evaluate();
        // The time that it read, as it reads the clock once.
        const now_ms = world.now_ms();
        if (!wasActive)
          assert.equal(isActive, hasBad, 'it begins with a bad call since the last change, and only then');
        if (wasActive && !isActive) {
          const recent = calls.filter(({ at_ms }) => now_ms - at_ms < DWELL_MS);
          assert.ok(now_ms - changed_ms >= DWELL_MS, 'it ended before the dwell time');
          assert.ok(calls.length > 0, 'it ended without calls');
          assert.ok(!recent.some(({ isBad }) => isBad), 'it ended in spite of a bad call');
        }
        if (isActive !== wasActive) [calls, changed_ms] = [[], now_ms];
        await sleep(SECOND_MS, NEVER);
      }
    });
    return {};
  };
}
