/** Mutex under every schedule. The model takes the class, so that a mutant can replace it. */
import assert from 'node:assert/strict';
import type { Build } from '@ron/explorer';
import { isRonError } from '../errors.ts';
import { NEVER } from './never.ts';
import { touch } from '../sched.ts';
import type { Mutex } from './mutex.ts';

export interface MutexModelInit {
  callers: number;
  waiters_max: number;
  /** Whether the second caller may abort at any moment. */
  leaves?: boolean;
  closes?: boolean;
}

export function mutexModel(Class: typeof Mutex, init: MutexModelInit): Build {
  return (world) => {
    const mutex = new Class('mutex', { waiters_max: init.waiters_max });
    const leaving = new AbortController();
    const arrived: number[] = [];
    const served: number[] = [];
    const refused: number[] = [];
    let running = 0;
    let isClosed = false;
    const section = async (caller: number, signal: AbortSignal): Promise<void> => {
      touch(mutex);
      assert.ok(!signal.aborted, 'a section began for an aborted caller');
      assert.ok(!isClosed, 'a section began after close resolved');
      running += 1;
      served.push(caller);
      assert.equal(running, 1, 'two sections overlap');
      await world.io('section');
      running -= 1;
    };
    for (let caller = 0; caller < init.callers; caller++) {
      const signal = init.leaves === true && caller === 1 ? leaving.signal : NEVER;
      world.task(`caller ${caller}`, async () => {
        arrived.push(caller);
        await mutex
          .run(signal, () => section(caller, signal))
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
        await mutex.close();
        isClosed = true;
        assert.equal(running, 0, 'close resolved while a section runs');
      });
    }
    return {
      final: () => {
        assert.equal(served.length + refused.length, init.callers, 'each caller is served or refused');
        assert.deepEqual(
          served,
          arrived.filter((caller) => served.includes(caller)),
          'no caller overtakes',
        );
        const refused_max = Math.max(init.callers - 1 - init.waiters_max, 0) + (init.leaves === true ? 1 : 0);
        if (init.closes !== true) assert.ok(refused.length <= refused_max, 'a caller was refused without need');
        // [storage I-1] [kms I-1] [index I-1] [edge I-1] [interop I-1]
        assert.ok(!mutex.isHeld && mutex.waiters === 0, 'the mutex is still held');
      },
    };
  };
}
