/**
 * Model of thread batches on the real code. The explorer decides when threads start, answer, fail and die, and when a client
 * aborts.
 *
 * Every call settles once, with its own results or the error of its batch. A call that was aborted before its batch began is
 * not computed. A dead thread costs no call its result. There are never more batches than threads.
 */
import assert from 'node:assert/strict';
import type { Build, World } from '@ron/explorer';
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

type Outcome = 'succeeds' | 'dies' | 'fails';

/** Threads whose starts and batches succeed, die or fail as the explorer chooses. */
class ModelThreads {
  readonly #world: World;
  readonly #init: BatchesModelInit;
  /** Whether the client of the last call has aborted. */
  readonly #hasLeft: () => boolean;
  /** Arguments of batches that have begun: the same arguments again mean a retry. */
  readonly #begun = new Set<unknown>();
  #deaths_left: number;
  #failures_left: number;
  running = 0;

  constructor(world: World, init: BatchesModelInit, hasLeft: () => boolean) {
    this.#world = world;
    this.#init = init;
    this.#hasLeft = hasLeft;
    this.#deaths_left = init.deaths ?? 0;
    this.#failures_left = init.failures ?? 0;
  }

  async run(fn: string, args: readonly unknown[]): Promise<unknown> {
    if (fn !== 'ready') return await this.#compute(args);
    await this.#world.io('a thread starts');
    if (this.#outcome('start', false) === 'dies') throw new RonError('internal', 'a thread ended');
    return undefined;
  }

  async #compute(args: readonly unknown[]): Promise<string[]> {
    const items = args[0] as readonly string[];
    const last = this.#init.calls.at(-1)!;
    if (!this.#begun.has(args)) {
      for (const item of items)
        assert.ok(!this.#hasLeft() || !last.items.includes(item), `${item} is computed for an aborted call`);
    }
    this.#begun.add(args);
    this.running += 1;
    const { threads } = this.#init;
    assert.ok(this.running <= threads, `${this.running} batches at once for ${threads} threads`);
    await this.#world.io(`batch of ${items.join(' ')}`);
    this.running -= 1;
    const how = this.#outcome('batch', this.#failures_left > 0);
    if (how === 'dies') throw new RonError('internal', 'a thread ended');
    if (how === 'succeeds') return items.map((item) => `${item}!`);
    this.#failures_left -= 1;
    throw new BatchFailed(items);
  }

  #outcome(label: string, mayFail: boolean): Outcome {
    const outcomes = ['succeeds', ...(this.#deaths_left > 0 ? ['dies'] : []), ...(mayFail ? ['fails'] : [])] as const;
    const chosen = outcomes.length === 1 ? 'succeeds' : this.#world.choose(label, outcomes);
    if (chosen === 'dies') this.#deaths_left -= 1;
    return chosen as Outcome;
  }
}

export function threadBatches(Batches: BatchesClass, init: BatchesModelInit): Build {
  return (world) => {
    const client = new AbortController();
    const { signal: stays } = new AbortController();
    const left = new Error('the client left');
    const threads = new ModelThreads(world, init, () => client.signal.aborted);
    let answered = 0;
    const batches = new Batches<string, string>({
      name: 'batches',
      threads: init.threads,
      queue_max: init.calls.length,
      module: new URL(import.meta.url),
      fn: 'shout',
      pack: (items) => [items],
      unpack: (answer: string[]) => answer,
      pool: { run: ((fn: string, args: unknown[]) => threads.run(fn, args)) as never, close: async () => undefined },
    });

    for (const call of init.calls) {
      const { items, cost_us } = call;
      const mayLeave = init.leaves === true && call === init.calls.at(-1);
      world.task(`call ${items.join(' ')}`, async () => {
        // Like the production callers: reading it starts a thread.
        void batches.isReady;
        const given = await batches
          .run(items, cost_us, mayLeave ? client.signal : stays)
          .catch((error: unknown) => ({ error }));
        answered += 1;
        if (!Array.isArray(given) && mayLeave && given.error === left) return;
        assertOwn(items, given);
      });
    }
    if (init.leaves === true) world.task('leave', async () => client.abort(left));
    return {
      final: () => {
        assert.equal(answered, init.calls.length, 'every call is answered');
        assert.equal(threads.running, 0);
      },
    };
  };
}

/** A call gets its own results, or the error of its own batch. */
function assertOwn(items: readonly string[], given: string[] | { readonly error: unknown }): void {
  if (Array.isArray(given)) {
    const own = items.map((item) => `${item}!`);
    assert.deepEqual(given, own, 'the results are its own');
    return;
  }
  const { error } = given;
  assert.ok(!isRonError(error, 'internal'), 'a thread that died cost a call its answer');
  assert.ok(error instanceof BatchFailed, String(error));
  const isOwn = items.every((item) => error.items.includes(item));
  assert.ok(isOwn, 'the error belongs to another batch');
}
