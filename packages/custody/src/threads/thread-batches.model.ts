/**
 * Model of thread batches on the real code. The explorer decides when threads start, answer, fail and die, and when a client
 * aborts.
 *
 * Every call settles once, with its own results or the error of its batch. A call that was aborted before its batch began is
 * not computed. A dead thread costs no call its result. There are never more batches than threads.
 */
import assert from 'node:assert/strict';
import type { Build } from '@ron/explorer';
import { isRonError, RonError } from '@ron/kernel';
import type { ThreadBatches } from './thread-batches.ts';

export type BatchesClass = typeof ThreadBatches;

export interface BatchesModelInit {
  readonly threads: number;
  /** The items and the cost of each call. */
  readonly calls: readonly { readonly items: readonly string[]; readonly cost_us: number }[];
  /** Whether the client of the last call aborts at some moment. */
  readonly leaves?: boolean;
  /** Batches, or starts of a thread, that may end with the death of the thread. */
  readonly deaths?: number;
  /** Batches that may fail for another reason. */
  readonly failures?: number;
}

class BatchFailed extends Error {
  readonly items: readonly string[];

  constructor(items: readonly string[]) {
    super(`the batch of ${items.join(' ')} failed`);
    this.items = items;
  }
}

export function threadBatches(Batches: BatchesClass, init: BatchesModelInit): Build {
  return (world) => {
    const client = new AbortController();
    const { signal: stays } = new AbortController();
    const left = new Error('the client left');
    const last = init.calls.at(-1)!;
    /** Arguments of batches that have begun: the same arguments again mean a retry. */
    const begun = new Set<unknown>();
    let deaths_left = init.deaths ?? 0;
    let failures_left = init.failures ?? 0;
    let dispatched = 0;
    let answered = 0;

    const outcome = (label: string, mayFail: boolean): 'goes well' | 'dies' | 'fails' => {
      const outcomes = ['goes well', ...(deaths_left > 0 ? ['dies'] : []), ...(mayFail ? ['fails'] : [])] as const;
      const chosen = outcomes.length === 1 ? 'goes well' : world.choose(label, outcomes);
      if (chosen === 'dies') deaths_left -= 1;
      return chosen as 'goes well' | 'dies' | 'fails';
    };
    const run = async (fn: string, args: readonly unknown[]): Promise<unknown> => {
      if (fn === 'ready') {
        await world.io('a thread starts');
        if (outcome('start', false) === 'dies') throw new RonError('internal', 'a thread ended');
        return undefined;
      }
      const items = args[0] as readonly string[];
      if (!begun.has(args)) {
        for (const item of items)
          assert.ok(!client.signal.aborted || !last.items.includes(item), `${item} is computed for an aborted call`);
      }
      begun.add(args);
      dispatched += 1;
      assert.ok(dispatched <= init.threads, `${dispatched} batches at once for ${init.threads} threads`);
      await world.io(`batch of ${items.join(' ')}`);
      dispatched -= 1;
      const how = outcome('batch', failures_left > 0);
      if (how === 'dies') throw new RonError('internal', 'a thread ended');
      if (how === 'goes well') return items.map((item) => `${item}!`);
      failures_left -= 1;
      throw new BatchFailed(items);
    };
    const batches = new Batches<string, string>({
      name: 'batches',
      threads: init.threads,
      queue_max: init.calls.length,
      module: new URL(import.meta.url),
      fn: 'shout',
      pack: (items) => [items],
      unpack: (answer: string[]) => answer,
      pool: { run: run as never, close: async () => undefined },
    });

    for (const call of init.calls) {
      const { items, cost_us } = call;
      const mayLeave = init.leaves === true && call === last;
      world.task(`call ${items.join(' ')}`, async () => {
        // Like the production callers: reading it starts a thread.
        void batches.isReady;
        const given = await batches
          .run(items, cost_us, mayLeave ? client.signal : stays)
          .catch((error: unknown) => ({ error }));
        answered += 1;
        if (Array.isArray(given)) {
          assert.deepEqual(
            given,
            items.map((item) => `${item}!`),
            'the results are its own',
          );
          return;
        }
        const { error } = given;
        if (mayLeave && error === left) return;
        assert.ok(!isRonError(error, 'internal'), 'a thread that died cost a call its answer');
        assert.ok(error instanceof BatchFailed, String(error));
        assert.ok(
          items.every((item) => error.items.includes(item)),
          'the error belongs to another batch',
        );
      });
    }
    if (init.leaves === true) world.task('leave', async () => client.abort(left));
    return {
      final: () => {
        assert.equal(answered, init.calls.length, 'every call is answered');
        assert.equal(dispatched, 0);
      },
    };
  };
}
