import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Deadline } from '../time/deadline.ts';
import { RonError } from '../errors.ts';
import { Mpsc } from '../channels/mpsc.ts';
import { sched, sleep } from '../sched.ts';
import { VirtualSched } from '../virtual-sched.ts';
import { WorkQueue } from './work-queue.ts';

const never = new AbortController().signal;
const BUDGET_MS = 1000;
const TARGET_MS = BUDGET_MS / 10;
const INTERVAL_MS = 5 * TARGET_MS;

/** A queue on a virtual clock, filled by hand and served job by job. */
class Bench {
  readonly time = new VirtualSched();
  readonly queue = new WorkQueue('work', { capacity: 512, lanes: ['get', 'put'] });
  readonly ran: string[] = [];
  readonly answers = new Map<string, string>();
  retry_after_ms: number | undefined;

  submit(name: string, budget_ms = BUDGET_MS, work_ms = 0, lane = 'get'): void {
    const deadline = Deadline.after('request', budget_ms);
    const answer = this.queue.submit(lane, deadline, async () => {
      this.ran.push(name);
      if (work_ms > 0) await sleep(work_ms, never);
    });
    answer.then(
      () => this.answers.set(name, 'done'),
      (error: unknown) => {
        this.answers.set(name, error instanceof RonError ? error.code : String(error));
        if (error instanceof RonError) this.retry_after_ms = error.retry_after_ms;
      },
    );
  }

  async serve(count = 1): Promise<void> {
    for (; count > 0; count -= 1) {
      const job = await this.queue.take(never);
      const ran = job!.run();
      await this.time.settle();
      while (this.queue.running > 0) await this.time.advance(1);
      await ran;
    }
  }
}

function bench(use: (bench: Bench) => Promise<void>): () => Promise<void> {
  const made = new Bench();
  return () => made.time.during(() => use(made));
}

test(
  'jobs that wait over their target for less than an interval are served in order',
  bench(async (b) => {
    for (const name of ['a', 'b', 'c']) b.submit(name);
    await b.time.advance(TARGET_MS + INTERVAL_MS - 1);
    await b.serve(2);
    assert.equal(b.queue.overloaded, false);
    assert.deepEqual(b.ran, ['a', 'b']);
  }),
);

test(
  'after a whole interval over target the newest is served first',
  bench(async (b) => {
    for (const name of ['a', 'b', 'c', 'd']) b.submit(name);
    await b.time.advance(TARGET_MS + 1);
    await b.serve();
    await b.time.advance(INTERVAL_MS - 1);
    b.submit('e');
    await b.serve(2);
    assert.equal(b.queue.overloaded, true);
    assert.deepEqual(b.ran, ['a', 'e', 'd']);
  }),
);

test(
  'one job taken within its target starts the interval anew',
  bench(async (b) => {
    b.submit('a');
    await b.time.advance(TARGET_MS);
    b.submit('b');
    await b.serve();
    await b.time.advance(TARGET_MS - 1);
    b.submit('c');
    await b.serve();
    for (const name of ['d', 'e', 'f']) b.submit(name);
    await b.time.advance(INTERVAL_MS);
    await b.serve(2);
    assert.equal(b.queue.overloaded, false);
    assert.deepEqual(b.ran, ['a', 'b', 'c', 'd']);
  }),
);

test(
  'a stall in which no worker takes a job counts as overload at once when it ends',
  bench(async (b) => {
    for (const name of ['a', 'b', 'c']) b.submit(name);
    await b.time.advance(TARGET_MS + INTERVAL_MS);
    await b.serve();
    assert.deepEqual(b.ran, ['c']);
    assert.equal(b.queue.overloaded, true);
  }),
);

test(
  'overload ends when the lane runs empty',
  bench(async (b) => {
    for (const name of ['a', 'b']) b.submit(name);
    await b.time.advance(TARGET_MS + INTERVAL_MS);
    await b.serve(2);
    assert.equal(b.queue.overloaded, false);
    for (const name of ['c', 'd', 'e']) b.submit(name);
    await b.serve(3);
    assert.deepEqual(b.ran, ['b', 'a', 'c', 'd', 'e']);
  }),
);

test(
  'overload ends when the oldest job is under its target again',
  bench(async (b) => {
    b.submit('sample', BUDGET_MS, 1);
    await b.serve();
    b.submit('old', TARGET_MS + INTERVAL_MS + 10);
    await b.time.advance(TARGET_MS + INTERVAL_MS);
    for (const name of ['a', 'b', 'c']) b.submit(name);
    await b.serve();
    assert.equal(b.queue.overloaded, true);
    await b.time.advance(10);
    await b.serve();
    assert.equal(b.queue.overloaded, false);
    assert.deepEqual(b.ran, ['sample', 'c', 'a']);
    assert.equal(b.answers.get('old'), 'timeout');
  }),
);

test(
  'in overload a job that cannot make its deadline is dropped with busy and a time to come back, before it is too late',
  bench(async (b) => {
    b.submit('sample', BUDGET_MS, 50);
    await b.serve();
    for (const name of ['a', 'b', 'c']) b.submit(name);
    await b.time.advance(BUDGET_MS - 10);
    b.submit('d');
    await b.serve();
    assert.deepEqual(b.ran, ['sample', 'd']);
    assert.deepEqual(
      ['a', 'b', 'c'].map((name) => b.answers.get(name)),
      ['busy', 'busy', 'busy'],
    );
    assert.equal(b.queue.shed_total, 3);
    assert.equal(b.queue.busy_total, 3);
    assert.ok(b.retry_after_ms! > 0, 'it says when to come back');
    assert.equal(b.queue.timeout_total, 0);
  }),
);

test(
  'in overload the newest is passed over too if it cannot make its deadline',
  bench(async (b) => {
    b.submit('sample', BUDGET_MS, 50);
    await b.serve();
    for (const name of ['a', 'b']) b.submit(name);
    await b.time.advance(TARGET_MS + INTERVAL_MS);
    b.submit('hasty', 20);
    await b.serve();
    assert.deepEqual(b.ran, ['sample', 'b']);
    assert.equal(b.answers.get('hasty'), 'busy');
  }),
);

test(
  'without overload a job with little time left is still tried',
  bench(async (b) => {
    b.submit('sample', BUDGET_MS, 50);
    await b.serve();
    b.submit('hasty', 20, 10);
    await b.serve();
    assert.equal(b.answers.get('hasty'), 'done');
  }),
);

test(
  'one lane in overload does not change the order of another',
  bench(async (b) => {
    b.submit('g1');
    b.submit('g2');
    await b.time.advance(TARGET_MS + INTERVAL_MS);
    b.submit('p1', BUDGET_MS, 0, 'put');
    b.submit('p2', BUDGET_MS, 0, 'put');
    await b.serve(4);
    assert.deepEqual(b.ran, ['g2', 'p1', 'g1', 'p2']);
  }),
);

test(
  'one very slow job does not make the lane refuse permanently: its estimate halves with each budget of silence',
  bench(async (b) => {
    b.submit('slow', BUDGET_MS, 4000);
    await b.serve();
    for (const name of ['a', 'b']) b.submit(name);
    await b.time.advance(TARGET_MS + INTERVAL_MS);
    const waiting = b.queue.take(never);
    await b.time.settle();
    assert.deepEqual([b.answers.get('a'), b.answers.get('b')], ['busy', 'busy']);
    b.submit('once it is empty it tries again');
    await (await waiting)!.run();
    await b.time.advance(10 * BUDGET_MS);
    for (const name of ['c', 'd']) b.submit(name);
    await b.time.advance(TARGET_MS + INTERVAL_MS);
    await b.serve();
    assert.deepEqual(b.ran, ['slow', 'once it is empty it tries again', 'd']);
  }),
);

test('a declared budget decides the target, so that clients in a hurry cannot cause overload', async () => {
  const time = new VirtualSched();
  await time.during(async () => {
    const queue = new WorkQueue('work', { capacity: 8, lanes: ['get'], budget_ms: BUDGET_MS });
    const hasty = [1, 2].map(() => queue.submit('get', Deadline.after('get', 100), () => Promise.resolve()));
    await time.advance(99);
    await (await queue.take(never))!.run();
    assert.equal(queue.overloaded, false);
    await (await queue.take(never))!.run();
    await Promise.all(hasty);
  });
});

interface Load {
  readonly workers: number;
  readonly work_ms: number;
  readonly arrivals_per_s: number;
  /** How many come at a time. */
  readonly burst: number;
  readonly duration_ms: number;
}

interface Served {
  /** Jobs that ended within their deadline, while the load lasted. */
  good: number;
  /** Jobs whose work ended after their deadline. */
  late: number;
  refused: number;
  worst_ms: number;
  /** Which arrival was done first, second, ... */
  readonly order: number[];
}

type Queue = (deadline: Deadline, work: () => Promise<void>) => Promise<void>;

/** Offers the load to a queue and counts the answers that came in time. */
async function simulate(load: Load, open: (workers: number) => { submit: Queue; close: () => void }): Promise<Served> {
  const time = new VirtualSched();
  return time.during(async () => {
    const { submit, close } = open(load.workers);
    const served: Served = { good: 0, late: 0, refused: 0, worst_ms: 0, order: [] };
    let worked = 0;
    const work = async (arrival: number): Promise<void> => {
      await sleep(load.work_ms, never);
      worked += 1;
      served.order.push(arrival);
    };
    const gap_ms = 1000 / load.arrivals_per_s;
    for (let arrival = 0; arrival * gap_ms < load.duration_ms; arrival += 1) {
      const deadline = Deadline.after('request', BUDGET_MS);
      const began_ms = sched.now_ms();
      submit(deadline, () => work(arrival)).then(
        () => {
          if (deadline.expired || sched.now_ms() > load.duration_ms) return;
          served.good += 1;
          served.worst_ms = Math.max(served.worst_ms, sched.now_ms() - began_ms);
        },
        () => (served.refused += 1),
      );
      if ((arrival + 1) % load.burst === 0) await time.advance(load.burst * gap_ms);
    }
    served.late = worked - served.good;
    close();
    await time.advance(5 * BUDGET_MS);
    return served;
  });
}

function openWorkQueue(workers: number): { submit: Queue; close: () => void } {
  const queue = new WorkQueue('work', { capacity: 512, lanes: ['get'] });
  const worker = async (): Promise<void> => {
    for (let job = await queue.take(never); job !== undefined; job = await queue.take(never)) await job.run();
  };
  for (let index = 0; index < workers; index += 1) void worker();
  return { submit: (deadline, work) => queue.submit('get', deadline, work), close: () => queue.close() };
}

/** The plain queue: in order, refusing when full; `skipLate` also drops jobs that are too late when their turn comes. */
function openFifo(workers: number, skipLate: boolean): { submit: Queue; close: () => void } {
  const queue = new Mpsc<() => Promise<void>>('work', 512);
  const worker = async (): Promise<void> => {
    for (let job = await queue.recv(never); job !== undefined; job = await queue.recv(never)) await job();
  };
  for (let index = 0; index < workers; index += 1) void worker();
  const submit: Queue = (deadline, work) => {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const job = async (): Promise<void> => {
      if (skipLate && deadline.expired) return reject(new RonError('timeout', 'too late'));
      await work();
      resolve();
    };
    if (queue.trySend(job) !== 'ok') reject(new RonError('busy', 'full'));
    return promise;
  };
  return { submit, close: () => queue.close() };
}

test('in standing overload far more jobs end within their deadline than with a plain queue', async (t) => {
  // Four workers do 200 jobs a second; 500 come.
  const load: Load = { workers: 4, work_ms: 20, arrivals_per_s: 500, burst: 1, duration_ms: 10_000 };
  const possible = (load.workers * load.duration_ms) / load.work_ms;
  const results = {
    'plain fifo': await simulate(load, (workers) => openFifo(workers, false)),
    'fifo that skips late jobs': await simulate(load, (workers) => openFifo(workers, true)),
    'work queue': await simulate(load, openWorkQueue),
  };
  for (const [name, { good, late, refused, worst_ms }] of Object.entries(results)) {
    const rate = `${good} of ${possible} possible jobs in time, ${late} ended too late`;
    t.diagnostic(`${name}: ${rate}, ${refused} refused, slowest good one ${Math.round(worst_ms)} ms`);
  }
  const best = results['work queue'];
  assert.ok(best.good >= 3 * results['plain fifo'].good, 'against a plain fifo');
  assert.ok(best.good >= 2 * results['fifo that skips late jobs'].good, 'against a fifo that skips late jobs');
  assert.ok(best.good >= 0.9 * possible, 'nearly all that the workers can do is of use');
});

test('below capacity the queue serves in order and drops nothing', async () => {
  const load: Load = { workers: 4, work_ms: 20, arrivals_per_s: 180, burst: 60, duration_ms: 3000 };
  const queued = await simulate(load, openWorkQueue);
  assert.deepEqual(queued, await simulate(load, (workers) => openFifo(workers, false)));
  assert.deepEqual([queued.good, queued.refused, queued.late], [540, 0, 0]);
  assert.deepEqual(
    queued.order,
    queued.order.toSorted((a, b) => a - b),
  );
});

test(
  'tryTake gives a job that waits, and nothing if those that wait are too late or are dropped',
  bench(async (b) => {
    assert.equal(b.queue.tryTake(), undefined);
    b.submit('a');
    await b.queue.tryTake()!.run();
    b.submit('late', 10);
    await b.time.advance(10);
    assert.equal(b.queue.tryTake(), undefined);
    // One that is taken within its target begins the interval anew; in standing overload the oldest are then hopeless.
    b.submit('sample', BUDGET_MS, 100);
    await b.serve();
    b.submit('shed', TARGET_MS + INTERVAL_MS + 10);
    await b.time.advance(TARGET_MS + INTERVAL_MS);
    assert.equal(b.queue.depth, 1);
    assert.equal(b.queue.tryTake(), undefined);
    assert.equal(b.queue.depth, 0);
    await b.time.settle();
    assert.equal(b.answers.get('shed'), 'busy');
    b.submit('b');
    b.queue.close();
    await b.queue.tryTake()!.run();
    assert.deepEqual(b.ran, ['a', 'sample', 'b']);
  }),
);
