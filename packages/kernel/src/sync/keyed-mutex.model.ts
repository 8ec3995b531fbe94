/** KeyedMutex under every schedule. The model takes the class, so that a mutant can replace it. */
import assert from 'node:assert/strict';
import type { Build } from '@ron/explorer';
import { isRonError, RonError } from '../errors.ts';
import { NEVER } from './never.ts';
import type { KeyedMutex } from './keyed-mutex.ts';

export interface KeyedMutexModelInit {
  callers: number;
  preempt: boolean;
  /** Whether the first caller may abort at any moment. */
  leaves?: boolean;
  closes?: boolean;
}

/** Callers of one key. A section ends early when its signal is aborted. */
export function keyedMutexModel(Class: typeof KeyedMutex, init: KeyedMutexModelInit): Build {
  return (world) => {
    const mutex = new Class('mutex', { keys_max: 1, waiters_max: init.callers, preempt: init.preempt });
    const leaving = new AbortController();
    const arrived: number[] = [];
    const begun: number[] = [];
    let running = 0;
    let ended = 0;
    let isClosing = false;
    let isClosed = false;
    const section = async (caller: number, signal: AbortSignal): Promise<void> => {
      assert.ok(!isClosed, 'a section began after close resolved');
      if (caller === 0) assert.ok(!leaving.signal.aborted, 'a section began for an aborted caller');
      if (isClosing) assert.ok(signal.aborted, 'a section began after close and was not aborted');
      running += 1;
      begun.push(caller);
      assert.equal(running, 1, 'two sections overlap');
      if (init.preempt && arrived.at(-1) !== caller) assert.ok(signal.aborted, 'a section was not preempted');
      await world.io('section');
      if (!signal.aborted) await world.io('rest of the section');
      running -= 1;
    };
    for (let caller = 0; caller < init.callers; caller++) {
      const signal = init.leaves === true && caller === 0 ? leaving.signal : NEVER;
      world.task(`caller ${caller}`, async () => {
        if (!signal.aborted && !mutex.isClosed) arrived.push(caller);
        await mutex
          .run('key', signal, (mine) => section(caller, mine))
          .catch((error: unknown) => {
            const isExpected = isRonError(error, 'draining') || error === leaving.signal.reason;
            assert.ok(isExpected, String(error));
          });
        ended += 1;
      });
    }
    if (init.leaves === true) world.task('leaver', async () => leaving.abort(new Error('gone')));
    if (init.closes === true) {
      world.task('closer', async () => {
        isClosing = true;
        await mutex.close(new RonError('draining', 'shutdown'));
        isClosed = true;
        assert.equal(running, 0, 'close resolved while a section runs');
      });
    }
    return {
      final: () => {
        assert.equal(ended, init.callers, 'a caller still waits');
        assert.deepEqual(
          begun,
          arrived.filter((caller) => begun.includes(caller)),
          'no caller overtakes',
        );
        assert.equal(mutex.size, 0, 'a key is left');
      },
    };
  };
}
