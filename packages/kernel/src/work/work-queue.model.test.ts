import { test } from 'node:test';
import { assertCaught, assertHolds, mutant } from '@ron/explorer';
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

/** Two jobs of one key and one of another, with room for two. */
const KEYED: Shape = {
  ...shape(3, 0, 2, 'close'),
  lanes: [{ name: 'get', key: 'tenant', keys_max: 2 }],
  places: [
    { lane: 'get', key: 'flood' },
    { lane: 'get', key: 'flood' },
    { lane: 'get', key: 'zoo', hasRoom: true },
  ],
};
/** The same under one deadline, which may end while a job is displaced. */
const KEYED_UNDER_ONE: Shape = { ...KEYED, hasParent: true };
/** Two jobs of one lane and one of another, with room for two, of which one is reserved. */
const RESERVED: Shape = {
  ...shape(3, 0, 2, 'close'),
  lanes: ['bulk', { name: 'reads', reserve_share: 0.5, priority: 1 }],
  places: [{ lane: 'bulk' }, { lane: 'bulk' }, { lane: 'reads', hasRoom: true }],
};

const MODELS: Record<string, Shape> = {
  'after close every queued job is answered and the worker ends': DRAIN,
  'a full queue refuses one of two clients, and both are answered without any worker': REFUSING,
  'a client may leave at any time': LEAVING,
  'a worker may die at any time, and its job is answered': DYING,
  'jobs that an aborted worker did not take, another one takes': SURVIVED,
  'queued jobs may be aborted at any time': ABORTING,
  'a flood under one key leaves room for another, and displaced jobs are answered': KEYED,
  'a job is answered even if the deadline that it shares ends while it is accepted': KEYED_UNDER_ONE,
  'a lane always finds its reserved room': RESERVED,
};

for (const [name, model] of Object.entries(MODELS)) {
  test(name, async (t) => {
    const smaller = answersOnce(real, { ...model, clients: 1, workers: Math.min(model.workers, 1) });
    const options = { name, hash: true, smaller };
    const { schedules, pruned, steps, depth_max } = await assertHolds(answersOnce(real, model), options);
    t.diagnostic(`${schedules} schedules and ${pruned} known, ${steps} steps, at most ${depth_max} deep`);
  });
}

const FILES = {
  queue: import.meta.resolve('./work-queue.ts'),
  lanes: import.meta.resolve('./lanes.ts'),
  lane: import.meta.resolve('./work-lane.ts'),
  fair: import.meta.resolve('../fair/fair-queue.ts'),
  served: import.meta.resolve('./served-queue.ts'),
};

interface Mutant {
  readonly name: string;
  /** Default: the queue itself. */
  readonly file?: keyof typeof FILES;
  readonly find: string;
  readonly replace: string;
  readonly model: Shape;
  readonly expected: RegExp;
}

const MUTANTS: Mutant[] = [
  {
    name: 'a displaced job is not answered',
    find: "this.#shed(job, now_ms, 'gives the room to other keys')",
    replace: 'this.#lanes.remove(job)',
    model: KEYED,
    expected: /^deadlock/,
  },
  {
    name: 'a job follows its deadline before it is complete',
    find: 'open.unfollow = deadline.onOver((reason) => this.#over(job, reason));',
    replace:
      'job.open = undefined;\n    open.unfollow = deadline.onOver((reason) => this.#over(job, reason));\n    job.open = open;',
    model: KEYED_UNDER_ONE,
    expected: /a job is answered when its deadline is over|^deadlock/,
  },
  {
    name: 'no job is displaced',
    file: 'fair',
    find: 'spare >= places ?',
    replace: 'spare < 0 ?',
    model: KEYED,
    expected: /a client with room of its own was refused/,
  },
  {
    name: 'reserved room is shared as well',
    file: 'lanes',
    find: 'free - reserve, capacity',
    replace: 'free, capacity',
    model: RESERVED,
    expected: /more jobs wait than the capacity/,
  },
  {
    name: 'a lane does not use its reserve',
    file: 'lanes',
    find: 'return lane.size < lane.reserve || ',
    replace: 'return ',
    model: RESERVED,
    expected: /a client with room of its own was refused/,
  },
  {
    name: 'close does not wake the workers that wait',
    file: 'served',
    find: 'while (this.workers.size > 0) this.workers.wakeFirst(undefined);\n    this.workers.close();',
    replace: '',
    model: DRAIN,
    expected: /^deadlock/,
  },
  {
    name: 'a worker of a closed queue ends although jobs wait',
    find: 'const job = this.#next();\n    if (job !== undefined) return Promise.resolve(job);\n    if (this.isClosed)',
    replace:
      'if (this.isClosed) return Promise.resolve(undefined);\n    const job = this.#next();\n    if (job !== undefined) return Promise.resolve(job);\n    if (this.isClosed)',
    model: DRAIN,
    expected: /a worker ended although jobs wait/,
  },
  {
    name: 'a new job is not given to a worker that waits',
    find: 'if (this.workers.size > 0) this.#handOver();',
    replace: '',
    model: DRAIN,
    expected: /a job waits, and so does a worker/,
  },
  {
    name: 'the capacity is not checked',
    find: 'if (!this.#lanes.hasRoom(into) && ',
    replace: 'if (false && ',
    model: REFUSING,
    expected: /the owner checks for room/,
  },
  {
    name: 'deadlines are not checked',
    find: 'this.#sweep.by(job.expires_ms, now_ms);',
    replace: '',
    model: DYING,
    expected: /^deadlock/,
  },
  {
    name: 'the deadlines are looked at once only',
    find: 'return next_ms;',
    replace: 'return Infinity;',
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
    find: 'this.#over(job, reason);\n        ended.wake();',
    replace: 'this.#taken.delete(job);\n        ended.wake();',
    model: DYING,
    expected: /^deadlock/,
  },
];

for (const { name, file = 'queue', find, replace, model, expected } of MUTANTS) {
  test(`caught: ${name}`, async () => {
    const init = { entry: FILES.queue, through: [FILES.lanes, FILES.lane] };
    const module = await mutant<WorkQueueModule>(FILES[file], find, replace, init);
    await assertCaught(answersOnce(module, model), { name, hash: true }, expected);
  });
}
