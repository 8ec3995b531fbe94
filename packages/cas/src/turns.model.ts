/** Turns under every schedule. The model takes the class, so that a broken one can be put in its place. */
import assert from 'node:assert/strict';
import { isRonError } from '@ron/kernel';
import type { Build } from '@ron/explorer';
import type { Turns } from './turns.ts';

/** Requests for one key, one of which may leave while it waits, and a shutdown. A work ends when it is told to. */
export function takingTurns(Class: typeof Turns, init: { requests: number; leaves: boolean; closes: boolean }): Build {
  return (world) => {
    const turns = new Class();
    const leaving = new AbortController();
    const never = new AbortController().signal;
    let working = 0;
    let ended = 0;
    let closed = false;
    const work = async (signal: AbortSignal): Promise<void> => {
      assert.ok(!closed, 'a work began after the end');
      working += 1;
      assert.equal(working, 1, 'two works at once');
      // It goes on until it is told to end, or until it is done.
      await world.io('work');
      if (!signal.aborted) await world.io('more work');
      working -= 1;
    };
    for (let request = 0; request < init.requests; request++) {
      const signal = init.leaves && request === 0 ? leaving.signal : never;
      world.task(`request ${request}`, async () => {
        await turns.run('key', signal, work).catch((error: unknown) => {
          const isExpected = isRonError(error, 'draining') || error === leaving.signal.reason;
          assert.ok(isExpected, String(error));
        });
        ended += 1;
      });
    }
    if (init.leaves) world.task('leaver', async () => leaving.abort(new Error('gone')));
    if (init.closes) {
      world.task('closer', async () => {
        await turns.close();
        closed = true;
        assert.equal(working, 0, 'closed while a work is under way');
      });
    }
    return {
      final: () => {
        assert.equal(ended, init.requests, 'a request was left waiting');
        assert.ok(!turns.isTaken('key'), 'a turn is left');
      },
    };
  };
}
