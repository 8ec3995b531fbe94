/**
 * Model of the queue `work` with two places: a producer, a worker, and a stop at any moment.
 *
 * Every fill gets exactly one answer. A fill that has begun is not dropped: it ends, or its worker is aborted at the drain
 * deadline. After the stop at most two fills leave the queue, besides the one that the worker has; the worker ends. Without a
 * stop every accepted fill is served.
 */
import assert from 'node:assert/strict';
import type { Build } from '@ron/explorer';
import { Deadline, isRonError, RonError, touch, type WorkQueue } from '@ron/kernel';
import { concurrency } from '../concurrency.ts';
import { LANE } from './coalesced-fills.ts';

export interface QueueShape {
  readonly fills: number;
  readonly stops: boolean;
}

const CAPACITY = 2;
const { lanes } = concurrency.channels.work;

export function fillQueue(Queue: typeof WorkQueue, { fills, stops }: QueueShape): Build {
  return (world) => {
    const work = new Queue('work', { capacity: CAPACITY, lanes });
    const stopping = new AbortController();
    const aborting = new AbortController();
    const seen = { answers: '', begun: 0, ended: 0, drained: 0, isStopped: false, hasWorker: true };
    const fetch = async (): Promise<void> => {
      touch(seen);
      seen.begun += 1;
      if (seen.isStopped) seen.drained += 1;
      await world.io('fetch');
      touch(seen);
      seen.ended += 1;
    };
    const submit = async (at: number): Promise<void> => {
      touch(seen);
      const wasStopped = seen.isStopped;
      const answer = await work.submit(LANE, Deadline.unlimited('fill'), fetch, '').then(
        () => 'served',
        (error: unknown) => (isRonError(error) ? error.code : assert.fail(String(error))),
      );
      touch(seen);
      assert.ok(!seen.answers.includes(`${at}:`), 'a fill gets one answer');
      assert.ok(!wasStopped || answer === 'draining', 'a fill that comes after the stop is refused');
      assert.ok(stops || answer === 'served' || answer === 'busy', 'a fill that was accepted is served');
      seen.answers += `${at}:${answer} `;
    };
    world.task('producer', async () => {
      await Promise.all(Array.from({ length: fills }, (_, at) => submit(at)));
    });
    world.task(
      'worker',
      async () => {
        await work.serve({ signal: aborting.signal, stopping: stopping.signal }).catch((error: unknown) => {
          assert.equal(error, aborting.signal.reason, 'the worker ends by the stop only');
        });
        touch(seen);
        seen.hasWorker = false;
      },
      { daemon: !stops },
    );
    if (stops) {
      world.task('stop', async () => {
        touch(seen);
        seen.isStopped = true;
        work.close();
        stopping.abort();
        if (world.choose('drain', ['in time', 'too late']) === 'in time') return;
        aborting.abort(new RonError('canceled', 'the drain deadline has passed'));
        work.abortQueued(new RonError('draining', 'edge has stopped'));
      });
    }
    return {
      state: () => JSON.stringify([seen, work.depth, work.running, work.idle, aborting.signal.aborted]),
      invariant: () => {
        // [edge I-3] [edge I-9]
        assert.ok(work.depth <= CAPACITY, 'the queue has two places');
        assert.ok(seen.drained <= CAPACITY + 1, 'more fills were drained than the queue and the worker held');
      },
      final: () => {
        // [edge I-5] [edge I-6] [edge I-8]
        assert.equal(seen.answers.split(' ').length - 1, fills, 'every fill is answered');
        assert.equal(seen.begun, seen.ended, 'a fill that began has ended');
        assert.equal(seen.hasWorker, !stops, 'the worker ends with the stop');
        assert.deepEqual([work.depth, work.running], [0, 0], 'nothing is left');
        const served = seen.answers.split('served').length - 1;
        if (!aborting.signal.aborted) assert.equal(served, seen.begun, 'the result of the worker is the answer');
      },
    };
  };
}
