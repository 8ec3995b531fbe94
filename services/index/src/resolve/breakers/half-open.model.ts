/**
 * Model of half-open probes, on the real breaker table: lookups send requests to a target whose breaker has cooled down.
 *
 * Never more than `half_open_probes` requests hold a permit at a time, an open breaker admits none, and no probe is lost: once
 * all requests have ended, further ones decide the state.
 */
import assert from 'node:assert/strict';
import type { Build } from '@ron/explorer';
import { Cell, NEVER, sleep } from '@ron/kernel';
import { newBreakerEntries, type BreakerTable } from './breaker-table.ts';

export interface HalfOpenInit {
  readonly half_open_probes: number;
  /** Requests of lookups. */
  readonly lookups: number;
}

const TARGET = 'peer';
/** The shortest that the configuration allows. */
const COOLDOWN_S = 1;
/** Failed requests that open the breaker. */
const FAILURES = 3;

export function halfOpenProbes(Table: typeof BreakerTable, init: HalfOpenInit): Build {
  return (world) => {
    const { half_open_probes } = init;
    let underWay = 0;
    const request = async (): Promise<'success' | 'failure'> => {
      underWay += 1;
      const verdict = world.choose('verdict', ['success', 'failure'] as const);
      await world.io('answer');
      underWay -= 1;
      return verdict;
    };
    const table = new Table({
      entries: new Cell('breaker_table', 3, newBreakerEntries()),
      settings: () => ({ error_window_s: 10, trip_threshold: 0.5, cooldown_s: COOLDOWN_S, half_open_probes }),
    });
    for (let at = 0; at < FAILURES; at += 1) table.admit(TARGET)!.settle('failure');
    assert.equal(table.state(TARGET), 'open');
    world.task('clock', () => sleep(COOLDOWN_S * 1000, NEVER));
    for (let at = 0; at < init.lookups; at += 1) {
      world.task(`lookup ${at}`, async () => {
        const permit = table.admit(TARGET);
        if (permit !== undefined) permit.settle(await request());
      });
    }
    return {
      invariant: () => assert.ok(underWay <= half_open_probes, `${underWay} probes under way`),
      final: () => {
        for (let at = 0; at < half_open_probes; at += 1) table.admit(TARGET)?.settle('success');
        assert.notEqual(table.state(TARGET), 'half_open', 'a probe was lost: the breaker stays half-open');
      },
    };
  };
}
