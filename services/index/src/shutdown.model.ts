/**
 * Model of the shutdown: producers, the queue `work` with one place, the resolver task, and a stop at any moment.
 *
 * Every producer gets exactly one answer. A lookup that has begun is not dropped: it ends, or its resolver is aborted at the
 * drain deadline. The resolver ends, even if the stop comes while it waits for a job, and nothing is left in the queue.
 */
import assert from 'node:assert/strict';
import type { Build } from '@ron/explorer';
import { Deadline, isRonError, RonError, touch, type WorkQueue } from '@ron/kernel';
import { concurrency } from './concurrency.ts';

export interface Shape {
  readonly producers: number;
  readonly resolvers: number;
}

const { lanes } = concurrency.channels.work;

export function shutdown(Queue: typeof WorkQueue, { producers, resolvers }: Shape): Build {
  return (world) => {
    const work = new Queue('work', { capacity: 1, lanes });
    const stopping = new AbortController();
    const aborting = new AbortController();
    const seen = { answers: '', begun: 0, ended: 0, live: resolvers, stopped: false };
    const lookUp = async (): Promise<void> => {
      touch(seen);
      seen.begun += 1;
      await world.io('lookup');
      touch(seen);
      seen.ended += 1;
    };
    for (let at = 0; at < producers; at += 1) {
      world.task(`producer ${at}`, async () => {
        using deadline = Deadline.unlimited('resolve');
        touch(seen);
        const { stopped } = seen;
        const mine = { begun: false };
        const run = async (): Promise<void> => {
          mine.begun = true;
          await lookUp();
        };
        const answer = await work.submit(lanes[at % lanes.length]!.name, deadline, run, `${at}`).then(
          () => 'found',
          (error: unknown) => (isRonError(error) ? error.code : assert.fail(String(error))),
        );
        touch(seen);
        assert.ok(!seen.answers.includes(`${at}:`), 'a producer gets one answer');
        assert.ok(!stopped || answer === 'draining', 'work that comes after the stop is refused');
        assert.ok(answer !== 'draining' || !mine.begun, 'a lookup that began is dropped');
        seen.answers += `${at}:${answer} `;
      });
    }
    for (let at = 0; at < resolvers; at += 1) {
      world.task(`resolver ${at}`, async () => {
        await work.serve({ signal: aborting.signal, stopping: stopping.signal }).catch((error: unknown) => {
          assert.equal(error, aborting.signal.reason, 'a resolver ends by the stop only');
        });
        touch(seen);
        seen.live -= 1;
      });
    }
    world.task('stop', async () => {
      touch(seen);
      seen.stopped = true;
      work.close();
      stopping.abort();
      // The accepted lookups end within the drain, or their resolver is aborted.
      if (world.choose('drain', ['in time', 'too late']) === 'in time') return;
      aborting.abort(new RonError('canceled', 'the drain deadline has passed'));
      work.abortQueued(new RonError('draining', 'index has stopped'));
    });
    return {
      state: () => JSON.stringify([seen, work.depth, work.running, work.idle, aborting.signal.aborted]),
      invariant: () => assert.ok(work.depth <= 1, 'the queue has one place'),
      final: () => {
        // [index I-5] [index I-6] [index I-8]
        assert.equal(seen.answers.split(' ').length - 1, producers, 'every producer is answered');
        assert.equal(seen.live, 0, 'every resolver has ended');
        assert.equal(seen.begun, seen.ended, 'a lookup that began has ended');
        const found = seen.answers.split('found').length - 1;
        if (!aborting.signal.aborted) assert.equal(found, seen.begun, 'the result of a resolver is the answer');
        assert.deepEqual([work.depth, work.running], [0, 0], 'nothing is left in the queue');
      },
    };
  };
}
