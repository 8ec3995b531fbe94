/** The promises of Deadline under every order in which work ends, time runs out and a caller cancels. */
import assert from 'node:assert/strict';
import type { Build } from '@ron/explorer';
import type { Deadline } from './deadline.ts';
import { isRonError } from '../errors.ts';

export type DeadlineClass = typeof Deadline;

export interface RaceInit {
  readonly parent_ms: number;
  readonly child_ms: number;
  /** A further event that may happen at any moment. */
  readonly meddler: 'cancel parent' | 'cancel child' | 'abort outer' | 'look' | 'none';
}

/** Work that ends well, badly or never, under a child of a deadline that follows an outer signal. */
export function race(DeadlineUnderTest: DeadlineClass, init: RaceInit): Build {
  return (world) => {
    const outer = new AbortController();
    const stopped = new Error('stopped');
    const counted: string[] = [];
    const onExpire = (op: string): void => void counted.push(op);
    const parent = DeadlineUnderTest.after('request', init.parent_ms, { signal: outer.signal, onExpire });
    const child = parent.child('step', init.child_ms);
    const outcomes: string[] = [];
    let end = '';
    let signal: AbortSignal | undefined;
    let meddled_ms = Infinity;
    /** Whether it was stopped before work or time decided. */
    let stoppedFirst = false;

    const work = async (given: AbortSignal): Promise<string> => {
      signal = given;
      await world.io('work');
      end = world.choose('work', ['ends', 'fails', 'hangs']);
      if (end === 'fails') throw new Error('broken');
      if (end === 'hangs') await new Promise(() => {});
      return 'value';
    };
    const nameOf = (error: unknown): string => {
      if (isRonError(error, 'timeout')) return `timeout ${error.op}`;
      return error === stopped ? 'stopped' : String(error);
    };
    world.task('caller', async () => {
      try {
        outcomes.push(await child.run(work));
      } catch (error) {
        outcomes.push(nameOf(error));
      }
      child[Symbol.dispose]();
      parent[Symbol.dispose]();
    });
    if (init.meddler !== 'none') {
      world.task(init.meddler, async () => {
        meddled_ms = world.now_ms();
        stoppedFirst = init.meddler !== 'look' && counted.length === 0 && (end === '' || end === 'hangs');
        if (init.meddler === 'cancel parent') parent.cancel(stopped);
        else if (init.meddler === 'cancel child') child.cancel(stopped);
        else if (init.meddler === 'abort outer') outer.abort(stopped);
        else void [child.expired, parent.expired];
      });
    }
    const ends_ms = Math.min(init.parent_ms, init.child_ms);
    const expires = init.child_ms < init.parent_ms ? 'step' : 'request';
    /** Timers may be so late that both budgets are over: then either may be named, and both are counted. */
    const areBothOver = (): boolean => world.now_ms() >= init.parent_ms;
    return {
      invariant: () => {
        assert.equal(new Set(counted).size, counted.length, `counted twice: ${counted.join()}`);
        assert.ok(outcomes.length <= 1, 'settled twice');
      },
      final: () => {
        const [outcome] = outcomes;
        if (outcome === `timeout ${expires}`) {
          const others = areBothOver() ? ['request'] : [];
          assert.ok(counted.includes(expires), 'a timeout is counted');
          assert.deepEqual(new Set(counted).difference(new Set([expires, ...others])).size, 0, 'another is counted');
        } else assert.ok(!counted.includes(expires) || end !== 'ends' || signal?.aborted === true, 'counted in vain');
        if (stoppedFirst) assert.equal(outcome, 'stopped');
        if (outcome === 'value') assert.equal(end, 'ends');
        else if (outcome === 'Error: broken') assert.equal(end, 'fails');
        else if (outcome === 'stopped') assert.ok(meddled_ms <= ends_ms && init.meddler !== 'look');
        else if (!areBothOver() || outcome !== 'timeout request') assert.equal(outcome, `timeout ${expires}`);
        // Work that ended in time does not see a timeout afterwards.
        if (outcome === 'value' && counted.length === 0 && meddled_ms === Infinity)
          assert.equal(signal?.aborted, false);
      },
    };
  };
}
