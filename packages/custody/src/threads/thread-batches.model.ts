/**
 * Batches for threads, on the real code: threads start, answer, fail and die when the explorer says so, and a client
 * leaves at any moment.
 *
 * Every call is answered once, with its own results or the error of a hop that it was in. What nobody waited for when its
 * hop began is not computed. A thread that dies costs no call its answer. There are never more hops than threads.
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
  /** Whether the client of the last call leaves, at some moment. */
  readonly leaves?: boolean;
  /** Hops, or starts of a thread, that may end with the death of the thread. */
  readonly deaths?: number;
  /** Hops that may fail for another reason. */
  readonly failures?: number;
}

class HopFailed extends Error {
  readonly items: readonly string[];

  constructor(items: readonly string[]) {
    super(`the hop of ${items.join(' ')} failed`);
    this.items = items;
  }
}

export function threadBatches(Batches: BatchesClass, init: BatchesModelInit): Build {
  return (world) => {
    const client = new AbortController();
    const { signal: stays } = new AbortController();
    const left = new Error('the client left');
    const last = init.calls.at(-1)!;
    /** Arguments of hops that have begun: who makes one of them again made a hop once more. */
    const begun = new Set<unknown>();
    let deaths_left = init.deaths ?? 0;
    let failures_left = init.failures ?? 0;
    let hops = 0;
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
          assert.ok(
            !client.signal.aborted || !last.items.includes(item),
            `nobody waits for ${item}, which is computed`,
          );
      }
      begun.add(args);
      hops += 1;
      assert.ok(hops <= init.threads, `${hops} hops at once for ${init.threads} threads`);
      await world.io(`hop of ${items.join(' ')}`);
      hops -= 1;
      const how = outcome('hop', failures_left > 0);
      if (how === 'dies') throw new RonError('internal', 'a thread ended');
      if (how === 'goes well') return items.map((item) => `${item}!`);
      failures_left -= 1;
      throw new HopFailed(items);
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
        // As its users do: asking starts a thread.
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
        assert.ok(error instanceof HopFailed, String(error));
        assert.ok(
          items.every((item) => error.items.includes(item)),
          'the error is of a hop of others',
        );
      });
    }
    if (init.leaves === true) world.task('leave', async () => client.abort(left));
    return {
      final: () => {
        assert.equal(answered, init.calls.length, 'everybody is answered');
        assert.equal(hops, 0);
      },
    };
  };
}
