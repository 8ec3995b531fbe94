/** Submitters, workers, deadlines and a stop against each other, on the real batch queue, under every schedule. */
import type { Build } from '@ron/explorer';
import { Deadline } from '../time/deadline.ts';
import { assert, isRonError, RonError } from '../errors.ts';
import { touch } from '../sched.ts';
import type { BatchQueue } from './batch-queue.ts';

/** The code under test: the module itself, or a mutant of it. */
export interface BatchQueueModule {
  readonly BatchQueue: typeof BatchQueue;
}

export interface Shape {
  /** The number of pieces in the request of each submitter. */
  readonly requests: readonly number[];
  readonly workers: number;
  /** Default 2. */
  readonly batch_max?: number;
  /** Besides them, the last client that is answered closes the queue. */
  readonly event: 'close' | 'client leaves' | 'worker dies' | 'abort queued' | 'none';
  /** Whether the work of a piece may fail. */
  readonly fails?: boolean;
}

/** Every request is answered once, no work begins for a request that was answered, and every worker ends. */
export function answersOnce({ BatchQueue }: BatchQueueModule, shape: Shape): Build {
  return (world) => {
    const queue = new BatchQueue('sign', {
      capacity: 16,
      batch_max: shape.batch_max ?? 2,
      newBatch: () => ({ begun: () => undefined }),
    });
    const model = { begun: 0, ended: 0, begunInVain: false, answered: 0, live: 0 };
    const left = new AbortController();
    const dying = new AbortController();
    const never = new AbortController();
    shape.requests.forEach((pieces, at) => {
      world.task(`client ${at}`, async () => {
        const { signal } = at === 0 ? left : never;
        const deadline = Deadline.after('sign', 100 + at, { signal });
        const state = { begun: 0, isAnswered: false };
        const work = async (): Promise<number> => {
          touch(model);
          model.begunInVain ||= state.isAnswered;
          state.begun += 1;
          model.begun += 1;
          await world.io('work');
          touch(model);
          model.ended += 1;
          if (shape.fails === true && world.choose('work', ['ends', 'fails']) === 'fails')
            throw new RonError('internal', 'x');
          return at;
        };
        const piece = { cost_us: 1, work };
        try {
          const values = await queue.submitAll(
            `key ${at}`,
            Array.from({ length: pieces }, () => piece),
            deadline,
          );
          assert(values.length === pieces && values.every((value) => value === at), 'each gets its own results');
          assert(state.begun === pieces, 'done without work');
        } catch (error) {
          assert(error instanceof RonError, String(error));
          const isDropped =
            isRonError(error, 'draining') || isRonError(error, 'timeout') || isRonError(error, 'canceled');
          assert(isDropped || shape.fails === true, `client ${at}: ${String(error)}`);
          assert(pieces > 1 || !isDropped || state.begun === 0, 'work that has begun was dropped');
        }
        touch(model);
        state.isAnswered = true;
        model.answered += 1;
        if (model.answered === shape.requests.length) queue.close();
      });
    });
    for (let at = 0; at < shape.workers; at++) {
      world.task(`worker ${at}`, async () => {
        const { signal } = at === 0 ? dying : never;
        await queue.serve({ signal, stopping: never.signal }).catch((error: unknown) => {
          assert(signal.aborted && error === signal.reason, `a worker ends by itself: ${String(error)}`);
        });
        assert(signal.aborted || shape.workers > 1 || queue.depth === 0, 'the worker ended although jobs wait');
        touch(model);
        model.live += 1;
      });
    }
    const { event } = shape;
    if (event !== 'none') {
      world.task(event, async () => {
        // A worker that gathers jobs lets everything ready run first; the event may also come after that.
        await world.io(event);
        if (event === 'close') queue.close();
        if (event === 'client leaves') left.abort(new RonError('canceled', 'disconnected'));
        if (event === 'worker dies') dying.abort(new RonError('canceled', 'killed'));
        if (event === 'abort queued') queue.abortQueued(new RonError('draining', 'stopping'));
      });
    }
    return {
      final() {
        assert(model.answered === shape.requests.length, 'every request is answered');
        assert(model.live === shape.workers, 'every worker ends');
        assert(queue.depth === 0, 'no job is left');
        assert(!model.begunInVain, 'work began for a request that was answered');
        assert(model.begun === model.ended, 'work that has begun ends');
      },
    };
  };
}
