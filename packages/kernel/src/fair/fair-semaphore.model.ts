/** Calls, an abort and a close against each other, on the real semaphore, under every schedule. */
import type { Build } from '@ron/explorer';
import { assert, isRonError, RonError } from '../errors.ts';
import { touch } from '../sched.ts';
import type { FairSemaphore } from './fair-semaphore.ts';

/** The code under test: the module itself, or a mutant of it. */
export interface FairSemaphoreModule {
  readonly FairSemaphore: typeof FairSemaphore;
}

/** One permit: work never overlaps, every call is answered, and no permit is lost. */
export function onePermit(
  { FairSemaphore }: FairSemaphoreModule,
  calls: number,
  event: 'abort' | 'close' | 'none',
): Build {
  return (world) => {
    const semaphore = new FairSemaphore('verify', { limit: 1, capacity: 8, keys_max: 4 });
    const model = { working: 0, answered: 0, refused: 0, begunInVain: false };
    const left = new AbortController();
    const never = new AbortController();
    for (let at = 0; at < calls; at++) {
      world.task(`call ${at}`, async () => {
        const { signal } = at === 0 ? left : never;
        const work = async (): Promise<number> => {
          touch(model);
          // Remembered, because an error of the work is an answer like any other.
          model.begunInVain ||= signal.aborted;
          model.working += 1;
          assert(model.working === 1, 'more work than permits');
          await world.io('work');
          touch(model);
          model.working -= 1;
          if (world.choose('work', ['ends', 'fails']) === 'fails') throw new RonError('internal', 'broken');
          return at;
        };
        try {
          assert((await semaphore.run(`key ${at}`, 1, signal, work)) === at, 'a call gets its own result');
        } catch (error) {
          assert(error instanceof RonError, String(error));
          if (isRonError(error, 'canceled') || isRonError(error, 'draining')) model.refused += 1;
        }
        touch(model);
        model.answered += 1;
      });
    }
    if (event !== 'none') {
      world.task(event, async () => {
        touch(model);
        if (event === 'abort') left.abort(new RonError('canceled', 'disconnected'));
        else semaphore.close();
      });
    }
    return {
      invariant() {
        assert(semaphore.in_progress <= 1, 'more cost in progress than the limit and one call');
        assert(semaphore.depth === 0 || semaphore.in_progress === 1, 'a call waits although there is room');
      },
      final() {
        assert(!model.begunInVain, 'work began for an aborted call');
        assert(model.answered === calls, 'every call is answered');
        assert(semaphore.in_progress === 0 && semaphore.depth === 0, 'no permit is lost');
        assert(event !== 'none' || model.refused === 0, 'no call is refused');
      },
    };
  };
}
