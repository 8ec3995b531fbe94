import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { getEventListeners } from 'node:events';
import { test } from 'node:test';
import fc from 'fast-check';
import { Deadline } from '../time/deadline.ts';
import { isRonError, RonError } from '../errors.ts';
import { sleep } from '../sched.ts';
import { VirtualSched } from '../virtual-sched.ts';
import { WorkQueue } from './work-queue.ts';
import { after, code, never, onQueue, outcome, sleeper, work } from '../../test/work-queue-support.ts';

test(
  'a submitter gets the result or the error of its work',
  onQueue(4, async (queue) => {
    const answers = [
      queue.submit('get', after(100), () => Promise.resolve(7)),
      queue.submit('get', after(100), () => Promise.reject(new Error('no'))),
      queue.submit('get', after(100), () => {
        throw new Error('at once');
      }),
    ];
    const worker = work(queue);
    queue.close();
    const settled = await Promise.allSettled(answers);
    assert.deepEqual(
      settled.map((result) => (result.status === 'fulfilled' ? result.value : (result.reason as Error).message)),
      [7, 'no', 'at once'],
    );
    await worker;
  }),
);

test(
  'jobs without a time limit run, end with their signal, and leave the estimates of the lane finite',
  onQueue(1, async (queue, time) => {
    const client = new AbortController();
    const unlimited = (signal?: AbortSignal): Deadline => Deadline.unlimited('stream', signal && { signal });
    const worker = work(queue);
    for (let n = 0; n < 3; n += 1) {
      const done = queue.submit('get', unlimited(), () => sleep(100, never));
      await time.advance(100);
      await done;
    }
    const left = queue.submit('get', unlimited(client.signal), (deadline) => sleep(1e12, deadline.signal));
    await time.advance(3e9);
    queue.submit('get', unlimited(), () => Promise.resolve()).catch(() => undefined);
    const isSoon = (error: unknown): boolean => isRonError(error, 'busy') && error.retry_after_ms! < 1000;
    await assert.rejects(
      queue.submit('get', after(1000), () => Promise.resolve()),
      isSoon,
    );
    client.abort(new RonError('canceled', 'left'));
    await assert.rejects(left, code('canceled'));
    queue.close();
    await worker;
  }),
);

test(
  'work that read its signal leaves no listener on the signal of its worker, nor on its deadline',
  onQueue(4, async (queue, time) => {
    const worker = new AbortController();
    const client = new AbortController();
    const deadline = after(60_000, client.signal);
    for (let job = 0; job < 5; job++) {
      const answer = queue.submit('get', deadline, async (scope) => scope.signal.aborted);
      await (await queue.take(never))!.run(worker.signal);
      assert.equal(await answer, false);
      assert.equal(getEventListeners(worker.signal, 'abort').length, 0);
    }
    queue.close();
    assert.equal(time.timers.length, 0, 'the scope of each job is disposed');
  }),
);

test('a full queue refuses at once with busy, over all lanes, and says when to come back', async () => {
  const time = new VirtualSched();
  await time.during(async () => {
    const queue = new WorkQueue('work', { capacity: 2, lanes: ['get', 'put'] });
    const queued = [queue.submit('get', after(100), sleeper(10)), queue.submit('put', after(100), sleeper(10))];
    assert.equal(queue.depthOf('put'), 1);
    await assert.rejects(queue.submit('get', after(100), sleeper(10)), (error) => {
      assert.ok(isRonError(error, 'busy'));
      assert.ok(error.retry_after_ms! > 0);
      return true;
    });
    assert.equal(queue.busy_total, 1);
    assert.equal(queue.shed_total, 0);
    assert.equal(queue.depth, 2);
    queue.close();
    const worker = work(queue);
    await time.advance(20);
    await Promise.all([...queued, worker]);
  });
});

test('lanes are served in turn, each in the order of arrival', async () => {
  const time = new VirtualSched();
  await time.during(async () => {
    const queue = new WorkQueue('work', { capacity: 16, lanes: ['get', 'put', 'repair'] });
    const order: string[] = [];
    for (const name of ['get 1', 'get 2', 'get 3', 'get 4', 'put 1', 'put 2', 'repair 1']) {
      void queue.submit(name.split(' ')[0]!, after(100), () => Promise.resolve(order.push(name)));
    }
    queue.close();
    await work(queue);
    assert.deepEqual(order, ['get 1', 'put 1', 'repair 1', 'get 2', 'put 2', 'get 3', 'get 4']);
  });
});

test(
  'a job whose deadline passes while it waits is answered then, with one timer for all of them',
  onQueue(512, async (queue, time) => {
    const answers = Array.from({ length: 100 }, (_, index) =>
      outcome(queue.submit('get', after(1000 - index), sleeper(0))),
    );
    assert.equal(time.timers.length, 1);
    await time.advance(2000);
    answers.forEach(({ value, at_ms }, index) => assert.deepEqual([value, at_ms], ['timeout', 1000 - index]));
    assert.equal(queue.timeout_total, 100);
    assert.equal(queue.depth, 0);
    assert.deepEqual(time.timers, []);
  }),
);

test(
  'jobs that share a deadline end together, and those after them on their own time',
  onQueue(8, async (queue, time) => {
    const shared = after(50);
    const answers = [shared, shared, after(200), shared, after(300)].map((deadline) =>
      outcome(queue.submit('get', deadline, sleeper(0))),
    );
    await time.advance(1000);
    assert.deepEqual(
      answers.map(({ at_ms }) => at_ms),
      [50, 50, 200, 50, 300],
    );
  }),
);

test(
  'a deadline that is over already is refused with its reason',
  onQueue(8, async (queue) => {
    await assert.rejects(queue.submit('get', after(0), sleeper(0)), code('timeout'));
    const gone = new AbortController();
    gone.abort(new RonError('canceled', 'client went away'));
    await assert.rejects(queue.submit('get', after(10, gone.signal), sleeper(0)), /client went away/);
    assert.equal(queue.timeout_total, 1);
    assert.equal(queue.accepted_total, 0);
  }),
);

test(
  'when the client goes away its job leaves the queue and never runs',
  onQueue(8, async (queue) => {
    const client = new AbortController();
    const ran: string[] = [];
    const job = (name: string) => () => Promise.resolve(ran.push(name));
    const answers = [
      queue.submit('get', after(100), job('first')),
      queue.submit('get', after(100, client.signal), job('second')),
      queue.submit('get', after(100), job('third')),
    ];
    client.abort(new RonError('canceled', 'client went away'));
    assert.equal(queue.depth, 2);
    await assert.rejects(answers[1]!, /client went away/);
    queue.close();
    await work(queue);
    assert.deepEqual(ran, ['first', 'third']);
    assert.equal(queue.canceled_total, 1);
  }),
);

test(
  'a worker that stops waiting loses no job',
  onQueue(8, async (queue) => {
    const [leaving, staying] = [new AbortController(), new AbortController()];
    const left = queue.take(leaving.signal);
    const stayed = queue.take(staying.signal);
    leaving.abort(new Error('stop'));
    await assert.rejects(left, /stop/);
    const answer = queue.submit('get', after(100), () => Promise.resolve('done'));
    // After the hand-over the job belongs to the worker, even if its signal aborts.
    staying.abort(new Error('stop'));
    await (await stayed)!.run();
    assert.equal(await answer, 'done');
    await assert.rejects(queue.take(staying.signal), /stop/);
  }),
);

test(
  'a worker that must end before its work began sends the client away with busy',
  onQueue(8, async (queue) => {
    const worker = new AbortController();
    const taken = queue.take(worker.signal);
    const answer = queue.submit('get', after(100), () => assert.fail('it ran'));
    worker.abort(new Error('stop'));
    await (await taken)!.run(worker.signal);
    await assert.rejects(answer, code('busy'));
  }),
);

test(
  'when the deadline passes during the work the client is answered at once, and the worker stays until it has ended',
  onQueue(8, async (queue, time) => {
    const answer = outcome(queue.submit('get', after(100), () => sleep(250, never)));
    const job = await queue.take(never);
    const ran = outcome(job!.run());
    await time.advance(249);
    assert.deepEqual(answer, { value: 'timeout', at_ms: 100 });
    assert.equal(queue.running, 1);
    assert.ok(Number.isNaN(ran.at_ms));
    await time.advance(1);
    assert.equal(ran.at_ms, 250);
    assert.equal(queue.running, 0);
    assert.equal(queue.timeout_total, 1);
  }),
);

test(
  'a worker that must end answers the client, aborts the work and ends',
  onQueue(8, async (queue, time) => {
    const worker = new AbortController();
    let told: unknown;
    const answer = outcome(
      queue.submit('get', after(100), async (deadline) => {
        deadline.signal.addEventListener('abort', () => (told = deadline.signal.reason));
        await sleep(1000, never);
      }),
    );
    const ran = outcome((await queue.take(worker.signal))!.run(worker.signal));
    await time.advance(10);
    worker.abort(new RonError('canceled', 'killed'));
    await time.advance(0);
    assert.deepEqual(answer, { value: 'canceled', at_ms: 10 });
    assert.equal(told, worker.signal.reason);
    assert.equal(ran.at_ms, 10);
    assert.equal(queue.running, 1);
    await time.advance(1000);
    assert.equal(queue.running, 0);
  }),
);

test(
  'a job that a worker took and forgot is answered at its deadline, and can no longer run',
  onQueue(8, async (queue, time) => {
    const answer = outcome(queue.submit('get', after(100), () => assert.fail('it ran')));
    const job = await queue.take(never);
    await time.advance(100);
    assert.deepEqual(answer, { value: 'timeout', at_ms: 100 });
    await job!.run();
  }),
);

test(
  'a job runs once, however often run is called',
  onQueue(8, async (queue) => {
    let runs = 0;
    const answer = queue.submit('get', after(100), () => Promise.resolve((runs += 1)));
    const job = await queue.take(never);
    await Promise.all([job!.run(), job!.run()]);
    assert.equal(await answer, 1);
    assert.equal(runs, 1);
  }),
);

test('a queue has a capacity and lanes, and knows only its own', () => {
  assert.throws(() => new WorkQueue('work', { capacity: 0, lanes: ['get'] }), /capacity/);
  assert.throws(() => new WorkQueue('work', { capacity: 1, lanes: [] }), /has a lane/);
  assert.throws(() => new WorkQueue('work', { capacity: 1, lanes: ['get', 'get'] }), /lanes/);
  const queue = new WorkQueue('work', { capacity: 1, lanes: ['get'] });
  assert.throws(() => void queue.submit('put', after(100), sleeper(0)), /put/);
});

test('every accepted job is answered exactly once, and the totals add up', async () => {
  const action = fc.oneof(
    fc.record({
      kind: fc.constant('submit' as const),
      lane: fc.nat(1),
      budget_ms: fc.integer({ min: 1, max: 60 }),
      work_ms: fc.nat(80),
    }),
    fc.record({ kind: fc.constant('leave' as const), client: fc.nat(40) }),
    fc.record({ kind: fc.constant('advance' as const), ms: fc.nat(30) }),
    fc.record({ kind: fc.constant('replace' as const), worker: fc.nat(1) }),
  );
  await fc.assert(
    fc.asyncProperty(fc.array(action, { maxLength: 60 }), fc.boolean(), async (actions, abort) => {
      const time = new VirtualSched();
      await time.during(async () => {
        const queue = new WorkQueue('work', { capacity: 6, lanes: ['0', '1'] });
        const answers: string[] = [];
        const clients: AbortController[] = [];
        const start = (): { stop: AbortController; ended: Promise<void> } => {
          const stop = new AbortController();
          return { stop, ended: work(queue, stop.signal).catch(() => undefined) };
        };
        const workers = [start(), start()];
        for (const step of actions) {
          if (step.kind === 'advance') await time.advance(step.ms);
          if (step.kind === 'leave') clients[step.client]?.abort(new RonError('canceled', 'left'));
          if (step.kind === 'replace') {
            workers[step.worker]!.stop.abort(new RonError('canceled', 'killed'));
            workers[step.worker] = start();
          }
          if (step.kind !== 'submit') continue;
          const client = new AbortController();
          const answer = queue.submit(String(step.lane), after(step.budget_ms, client.signal), sleeper(step.work_ms));
          const index = clients.push(client) - 1;
          const note = (what: string): void => {
            assert.equal(answers[index], undefined, 'answered twice');
            answers[index] = what;
          };
          answer.then(
            () => note('done'),
            (error: unknown) => note((error as RonError).code),
          );
        }
        queue.close();
        if (abort) queue.abortQueued(new RonError('canceled', 'aborted'));
        await time.advance(1000);
        await Promise.all(workers.map(({ ended }) => ended));
        const count = (what: string): number => answers.filter((answer) => answer === what).length;
        assert.equal(answers.filter(Boolean).length, clients.length, 'all are answered');
        assert.equal(count('done') + count('busy') + count('timeout') + count('canceled'), clients.length);
        assert.equal(count('busy'), queue.busy_total);
        assert.equal(count('timeout'), queue.timeout_total);
        assert.equal(count('canceled'), queue.canceled_total);
        assert.equal(queue.accepted_total, clients.length - (queue.busy_total - queue.shed_total));
        assert.deepEqual([queue.depth, queue.running, time.timers.length], [0, 0, 0]);
      });
    }),
    { numRuns: 150 },
  );
});

test('finished jobs leave nothing behind, and a job costs microseconds', (t) => {
  // In a process of its own: the test runner's hooks on every promise would dominate the measurement.
  const url = (file: string): string => new URL(file, import.meta.url).href;
  const program = `
    import { Deadline } from '${url('../time/deadline.ts')}';
    import { WorkQueue } from '${url('./work-queue.ts')}';
    const queue = new WorkQueue('work', { capacity: 512, lanes: ['get', 'put'] });
    const stop = new AbortController();
    const worker = async () => { for (let job; (job = await queue.take(stop.signal)); ) await job.run(stop.signal); };
    const workers = [worker(), worker(), worker(), worker()];
    const work = async () => 1;
    const runMany = async (count) => {
      for (; count > 0; count -= 16) {
        const answers = [];
        for (let lane = 0; lane < 16; lane++) answers.push(queue.submit(lane % 2 ? 'get' : 'put', Deadline.after('get', 5000), work));
        await Promise.all(answers);
      }
    };
    const heapBytes = () => { gc(); return process.memoryUsage().heapUsed; };
    await runMany(32_000);
    const before_bytes = heapBytes();
    const began_ms = performance.now();
    await runMany(160_000);
    const each_us = (performance.now() - began_ms) / 160;
    console.log(JSON.stringify({ grown_bytes: heapBytes() - before_bytes, each_us, accepted: queue.accepted_total }));
    queue.close();
    await Promise.all(workers);`;
  const flags = ['--expose-gc', '--input-type=module', '--eval'];
  const output = execFileSync(process.execPath, [...flags, program], { encoding: 'utf8' });
  const { grown_bytes, each_us, accepted } = JSON.parse(output) as Record<string, number>;
  t.diagnostic(`160 000 jobs: the heap grew by ${grown_bytes} bytes; ${each_us!.toFixed(2)} us each`);
  assert.equal(accepted, 192_000);
  assert.ok(grown_bytes! < 256 * 1024, `the heap grew by ${grown_bytes} bytes`);
});
