import { test } from 'node:test';
import { assertCaught, assertHolds, assertReductionsAgree, mutant } from '@ron/explorer';
import { answersOnce, type Shape, type WorkQueueModule } from './work-queue.model.ts';
import * as real from './work-queue.ts';

const shape = (clients: number, workers: number, capacity: number, ...events: Shape['events']): Shape => ({
  clients,
  workers,
  capacity,
  events,
});

const DRAIN = shape(2, 1, 2, 'close');
const REFUSING = shape(2, 0, 1, 'close');
const LEAVING = shape(1, 1, 1, 'close', 'client leaves');
const DYING = shape(1, 1, 1, 'close', 'worker dies');
const SURVIVED = shape(1, 2, 1, 'close', 'worker dies');
const ABORTING = shape(1, 1, 1, 'close', 'abort queued');

const MODELS: Record<string, Shape> = {
  'after close every queued job is answered and the worker ends': DRAIN,
  'a full queue refuses one of two clients, and both are answered without any worker': REFUSING,
  'a client may leave at any time': LEAVING,
  'a worker may die at any time, and its job is answered': DYING,
  'what a dying worker did not take, another one does': SURVIVED,
  'queued jobs may be aborted at any time': ABORTING,
};

for (const [name, model] of Object.entries(MODELS)) {
  test(name, async (t) => {
    const { schedules, pruned, steps, depth_max } = await assertHolds(answersOnce(real, model), { name, hash: true });
    t.diagnostic(`${schedules} schedules and ${pruned} known, ${steps} steps, at most ${depth_max} deep`);
  });
}

test('cutting known states loses no ending', async (t) => {
  for (const model of [LEAVING, ABORTING]) {
    const endings = await assertReductionsAgree(answersOnce(real, model));
    t.diagnostic(`${model.events.join(', ')}: ${endings.size} endings`);
  }
});

const MUTANTS: { name: string; find: string; replace: string; model: Shape; expected: RegExp }[] = [
  {
    name: 'close does not wake the workers that wait',
    find: 'while (this.#workers.size > 0) this.#workers.wakeFirst(undefined);\n    this.#workers.close();',
    replace: '',
    model: DRAIN,
    expected: /^deadlock/,
  },
  {
    name: 'a worker of a closed queue goes home although jobs wait',
    find: 'const job = this.#next();\n    if (job !== undefined) return Promise.resolve(job);\n    if (this.#closed)',
    replace:
      'if (this.#closed) return Promise.resolve(undefined);\n    const job = this.#next();\n    if (job !== undefined) return Promise.resolve(job);\n    if (this.#closed)',
    model: DRAIN,
    expected: /a worker went home although jobs wait/,
  },
  {
    name: 'a new job is not given to a worker that waits',
    find: 'if (this.#workers.size > 0) this.#handOver();',
    replace: '',
    model: DRAIN,
    expected: /a job waits, and so does a worker/,
  },
  {
    name: 'the capacity is not looked at',
    find: 'this.#depth >= this.capacity',
    replace: 'false',
    model: REFUSING,
    expected: /more jobs wait than the capacity/,
  },
  {
    name: 'nobody looks at the deadlines',
    find: 'this.#sweepBy(job.expires_ms, now_ms);',
    replace: '',
    model: DYING,
    expected: /^deadlock/,
  },
  {
    name: 'the deadlines are looked at once only',
    find: 'if (next_ms < Infinity) this.#sweepBy(next_ms, now_ms);',
    replace: '',
    model: shape(2, 1, 2, 'close', 'worker dies'),
    expected: /^deadlock/,
  },
  {
    name: 'a job that was answered runs all the same',
    find: 'for (const job of queued) this.#conclude(job)?.fail(error);',
    replace: 'for (const job of queued) job.open?.answer.fail(error);',
    model: ABORTING,
    expected: /work began for a client that was answered/,
  },
  {
    name: 'a job is answered twice',
    find: 'return this.#conclude(job);',
    replace: 'return job.open?.answer;',
    model: DRAIN,
    expected: /timeouts are counted once/,
  },
  {
    name: 'begun work is dropped with the queued jobs',
    find: '.filter((job) => !job.begun)',
    replace: '',
    model: ABORTING,
    expected: /work that has begun was dropped/,
  },
  {
    name: 'a job of a worker that dies is not answered for it',
    find: 'this.#over(job, signal!.reason);\n      ended.wake();',
    replace: 'this.#taken.remove(job);\n      ended.wake();',
    model: DYING,
    expected: /^deadlock/,
  },
];

for (const { name, find, replace, model, expected } of MUTANTS) {
  test(`caught: ${name}`, async () => {
    const module = await mutant<WorkQueueModule>(new URL('./work-queue.ts', import.meta.url).href, find, replace);
    await assertCaught(answersOnce(module, model), { name, hash: true }, expected);
  });
}
