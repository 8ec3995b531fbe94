/** TurnBudget under every schedule. The model takes the class, so that a mutant can replace it. */
import assert from 'node:assert/strict';
import type { Build } from '@ron/explorer';
import { NEVER } from '../sync/never.ts';
import type { TurnBudget } from './turn-budget.ts';

export interface TurnBudgetModelInit {
  /** The units of each caller. */
  units: readonly number[];
  units_max: number;
  /** Whether the second caller may abort at any moment. */
  leaves?: boolean;
}

export function turnBudgetModel(Class: typeof TurnBudget, init: TurnBudgetModelInit): Build {
  return (world) => {
    const budget = new Class('budget', { units_max: init.units_max });
    const leaving = new AbortController();
    const arrived: number[] = [];
    const served: number[] = [];
    const left: number[] = [];
    for (const [caller, units] of init.units.entries()) {
      const signal = init.leaves === true && caller === 1 ? leaving.signal : NEVER;
      world.task(`caller ${caller}`, async () => {
        arrived.push(caller);
        await budget.take(units, signal).then(
          () => served.push(caller),
          (error: unknown) => {
            assert.equal(error, leaving.signal.reason);
            left.push(caller);
          },
        );
      });
    }
    if (init.leaves === true) world.task('leaver', async () => leaving.abort(new Error('gone')));
    return {
      final: () => {
        assert.equal(served.length + left.length, init.units.length, 'each caller has a turn or left');
        // Callers of one turn continue in any order.
        const inOrder = arrived.filter((caller) => served.includes(caller));
        if (init.units_max === 1) assert.deepEqual(served, inOrder, 'no caller overtakes');
        assert.equal(budget.waiters, 0);
      },
    };
  };
}
