/** Taking turns under every schedule. The model takes the class, so that a broken one can be put in its place. */
import assert from 'node:assert/strict';
import { isRonError, touch } from '@ron/kernel';
import type { Build } from '@ron/explorer';
import type { InTurn } from './in-turn.ts';

export interface InTurnModelInit {
  callers: number;
  waiting_max: number;
  /** Whether the second caller may leave while it waits. */
  leaves?: boolean;
  closes?: boolean;
}

export function inTurn(Class: typeof InTurn, init: InTurnModelInit): Build {
  return (world) => {
    const turns = new Class('turns', init.waiting_max);
    const leaving = new AbortController();
    const never = new AbortController().signal;
    const arrived: number[] = [];
    const served: number[] = [];
    const refused: unknown[] = [];
    let working = 0;
    let isClosed = false;
    const work = async (caller: number): Promise<void> => {
      touch(turns);
      assert.ok(!isClosed, 'a work began after the end');
      working += 1;
      served.push(caller);
      assert.equal(working, 1, 'two works at once');
      await world.io('work');
      working -= 1;
    };
    for (let caller = 0; caller < init.callers; caller++) {
      const signal = init.leaves === true && caller === 1 ? leaving.signal : never;
      world.task(`caller ${caller}`, async () => {
        arrived.push(caller);
        await turns
          .run(signal, () => work(caller))
          .catch((error: unknown) => {
            const isExpected =
              isRonError(error, 'busy') || isRonError(error, 'closed') || error === leaving.signal.reason;
            assert.ok(isExpected, String(error));
            refused.push(caller);
          });
      });
    }
    if (init.leaves === true) world.task('leaver', async () => leaving.abort(new Error('gone')));
    if (init.closes === true) {
      world.task('closer', async () => {
        await turns.close();
        isClosed = true;
        assert.equal(working, 0, 'closed while a work is under way');
      });
    }
    return {
      final: () => {
        assert.equal(served.length + refused.length, init.callers, 'everybody is served or refused');
        assert.deepEqual(
          served,
          arrived.filter((caller) => served.includes(caller)),
          'nobody overtakes',
        );
        const mayRefuse = Math.max(init.callers - 1 - init.waiting_max, 0) + (init.leaves === true ? 1 : 0);
        if (init.closes !== true) assert.ok(refused.length <= mayRefuse, 'somebody was refused without need');
      },
    };
  };
}
