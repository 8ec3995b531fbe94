import { test } from 'node:test';
import { assertCaught, assertHolds, mutant } from '@ron/explorer';
import { answersOnce, type BatchQueueModule, type Shape } from './batch-queue.model.ts';
import * as real from './batch-queue.ts';

const TWO: Shape = { requests: [1, 1], workers: 1, event: 'none' };
const CLOSING: Shape = { requests: [1], workers: 1, event: 'close' };
const LEAVING: Shape = { requests: [1], workers: 1, event: 'client leaves' };
const DYING: Shape = { requests: [1], workers: 1, event: 'worker dies' };
const PIECES: Shape = { requests: [2], workers: 1, batch_max: 1, event: 'none', fails: true };
const ABORTING: Shape = { requests: [1], workers: 1, event: 'abort queued' };

const MODELS: Record<string, Shape> = {
  'every accepted job is answered once': TWO,
  'the queue may be closed at any time, and the worker ends': CLOSING,
  'a client may leave at any time': LEAVING,
  'a worker may die at any time': DYING,
  'a request in pieces is answered once, even if a piece fails': PIECES,
  'queued jobs may be aborted at any time': ABORTING,
};

for (const [name, shape] of Object.entries(MODELS)) {
  test(name, async (t) => {
    const { schedules, steps } = await assertHolds(answersOnce(real, shape), { name, sleepSets: true });
    t.diagnostic(`${schedules} schedules, ${steps} steps`);
  });
}

const FILES = {
  queue: import.meta.resolve('./batch-queue.ts'),
  fair: import.meta.resolve('./fair-queue.ts'),
  served: import.meta.resolve('../work/served-queue.ts'),
};

const MUTANTS: {
  name: string;
  file?: keyof typeof FILES;
  find: string;
  replace: string;
  shape: Shape;
  expected: RegExp;
}[] = [
  {
    name: 'close does not wake the workers that wait',
    file: 'served',
    find: 'while (this.workers.size > 0) this.workers.wakeFirst(undefined);\n    this.workers.close();',
    replace: '',
    shape: CLOSING,
    expected: /^deadlock/,
  },
  {
    name: 'a worker of a closed queue ends although a job waits',
    find: 'if (this.#jobs.size > this.#promised) {\n      this.#promised += 1;\n      return Promise.resolve(true);',
    replace:
      'if (!this.isClosed && this.#jobs.size > this.#promised) {\n      this.#promised += 1;\n      return Promise.resolve(true);',
    shape: CLOSING,
    expected: /the worker ended although jobs wait/,
  },
  {
    name: 'a promise is never taken back',
    find: 'this.#promised -= 1;',
    replace: '',
    shape: CLOSING,
    expected: /the worker ended although jobs wait/,
  },
  {
    name: 'the deadlines are not watched while jobs wait',
    find: 'this.#sweep.by(request.expires_ms, now_ms);',
    replace: '',
    shape: { requests: [1], workers: 0, event: 'none' },
    expected: /^deadlock/,
  },
  {
    name: 'a job whose client left is done all the same',
    find: 'if (job.bucket !== undefined) this.#drop(job, reason);',
    replace: 'if (job.bucket !== undefined) job.answer.fail(reason);',
    shape: LEAVING,
    expected: /./,
  },
  {
    name: 'begun work is answered with the reason of its deadline',
    find: 'job.running?.abandon(reason);',
    replace: 'job.answer.fail(reason);',
    shape: LEAVING,
    expected: /work that has begun was dropped/,
  },
  {
    name: 'a piece is done after another one failed',
    find: 'if (other.bucket !== undefined) this.#drop(other, error);',
    replace: ';',
    shape: PIECES,
    expected: /work began for a request that was answered/,
  },
  {
    name: 'a removed entry stays in its bucket',
    file: 'fair',
    find: 'entry.bucket = undefined;',
    replace: '',
    shape: LEAVING,
    expected: /work that has begun was dropped/,
  },
];

for (const { name, file = 'queue', find, replace, shape, expected } of MUTANTS) {
  test(`caught: ${name}`, async () => {
    const module = await mutant<BatchQueueModule>(FILES[file], find, replace, { entry: FILES.queue });
    await assertCaught(answersOnce(module, shape), { name, sleepSets: true }, expected);
  });
}
