import { test } from 'node:test';
import { assertCaught, assertHolds, mutant } from '@ron/explorer';
import { threadBatches, type BatchesClass, type BatchesModelInit } from './thread-batches.model.ts';
import { ThreadBatches } from './thread-batches.ts';

const BATCHES = import.meta.resolve('./thread-batches.ts');

const SMALL = { items: ['a', 'b'], cost_us: 10 };
const LARGE = { items: ['c'], cost_us: 2000 };
const LARGE_TOO = { items: ['d'], cost_us: 2000 };

const LEAVES: BatchesModelInit = { threads: 1, calls: [SMALL, { items: ['c'], cost_us: 10 }], leaves: true };
const DEATH: BatchesModelInit = { threads: 1, calls: [SMALL, LARGE], deaths: 1 };
const FAILURE: BatchesModelInit = { threads: 1, calls: [SMALL, { items: ['c'], cost_us: 10 }], failures: 1 };
const TWO_THREADS: BatchesModelInit = { threads: 2, calls: [SMALL, LARGE, LARGE_TOO] };
const ALL: BatchesModelInit = { threads: 2, calls: [SMALL, LARGE], leaves: true, deaths: 1, failures: 1 };

test('each call settles once with its own results despite aborts, failures and dead threads; never more batches than threads', async () => {
  for (const init of [LEAVES, DEATH, FAILURE, TWO_THREADS, ALL]) {
    await assertHolds(threadBatches(ThreadBatches, init));
  }
});

const MUTANTS: { bug: string; find: string; replace: string; init: BatchesModelInit; caught: RegExp }[] = [
  {
    bug: 'calls that waited during a batch are never sent',
    find: 'this.#batches_running -= 1;\n      this.#send();',
    replace: 'this.#batches_running -= 1;',
    init: FAILURE,
    caught: /deadlock/,
  },
  {
    bug: 'aborted calls are computed',
    find: 'if (next.signal.aborted) {',
    replace: 'if (next === undefined) {',
    init: LEAVES,
    caught: /is computed for an aborted call/,
  },
  {
    bug: 'a batch whose thread died is not retried',
    find: "if (!isRonError(error, 'internal')) throw error;",
    replace: 'throw error;',
    init: DEATH,
    caught: /cost a call its answer/,
  },
  {
    bug: 'there is one batch more than threads',
    find: 'if (this.#batches_running < this.#running) return true;',
    replace: 'if (this.#batches_running <= this.#running) return true;',
    init: TWO_THREADS,
    caught: /3 batches at once for 2 threads/,
  },
  {
    bug: 'an aborted call shifts the results of the next',
    find: 'else answer.wake(results.slice(at, at + items.length));\n        at += items.length;',
    replace: 'else {\n answer.wake(results.slice(at, at + items.length));\n at += items.length;\n }',
    init: { threads: 1, calls: [SMALL, { items: ['c'], cost_us: 10 }].toReversed(), leaves: true },
    caught: /the results are its own/,
  },
  {
    bug: 'a failure rejects only the first call of its batch',
    find: 'for (const { answer } of batch) answer.fail(error);',
    replace: 'batch[0]!.answer.fail(error);',
    init: FAILURE,
    caught: /deadlock/,
  },
];

for (const { bug, find, replace, init, caught } of MUTANTS) {
  test(`caught: ${bug}`, async () => {
    const { ThreadBatches: Mutant } = await mutant<{ ThreadBatches: BatchesClass }>(BATCHES, find, replace);
    await assertCaught(threadBatches(Mutant, init), {}, caught);
  });
}
