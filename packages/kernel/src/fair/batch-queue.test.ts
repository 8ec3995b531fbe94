import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Deadline } from '../time/deadline.ts';
import { isRonError } from '../errors.ts';
import { NEVER } from '../sync/never.ts';
import { VirtualSched } from '../virtual-sched.ts';
import { BatchQueue } from './batch-queue.ts';

const soon = (): Deadline => Deadline.after('sign', 10_000);

function setUp(capacity = 16, batch_max = 4) {
  const batches: number[] = [];
  const signals: AbortSignal[] = [];
  let begun = 0;
  const queue = new BatchQueue('sign', {
    capacity,
    batch_max,
    newBatch: () => ({
      begun: (signal: AbortSignal) => {
        signals.push(signal);
        batches.push(begun);
      },
    }),
  });
  const work = async (): Promise<string> => {
    begun += 1;
    return 'done';
  };
  /** Serves all jobs that wait, and ends. */
  const drain = async (): Promise<void> => {
    queue.close();
    await queue.serve({ signal: NEVER, stopping: NEVER });
  };
  return { queue, work, batches, signals, drain };
}

test('jobs that arrive together are taken together, up to batch_max', async () => {
  const { queue, work, batches } = setUp();
  const answers = Array.from({ length: 8 }, () => queue.submit('acme', 1, soon(), work));
  const stop = new AbortController();
  const serving = queue.serve({ signal: NEVER, stopping: stop.signal });
  assert.deepEqual(new Set(await Promise.all(answers)), new Set(['done']));
  assert.deepEqual(batches, [4, 8]);
  stop.abort();
  await serving;
});

test('a batch holds a few milliseconds of cost, so dear jobs are taken one by one', async () => {
  const { queue, work, batches, drain } = setUp(64, 64);
  const answers = Array.from({ length: 4 }, () => queue.submit('acme', 5000, soon(), work));
  await drain();
  await Promise.all(answers);
  assert.deepEqual(batches, [1, 2, 3, 4]);
});

test('several workers that wait get a job each', async () => {
  const { queue, work, batches } = setUp();
  const stop = new AbortController();
  const workers = [1, 2].map(() => queue.serve({ signal: NEVER, stopping: stop.signal }));
  await Promise.all(Array.from({ length: 3 }, () => queue.submit('acme', 1, soon(), work)));
  assert.equal(batches.length, 2);
  stop.abort();
  await Promise.all(workers);
});

test('a full queue refuses at once, with a time to retry, and another key still finds room', async () => {
  const { queue, work, drain } = setUp(4);
  const accepted = [queue.submit('acme', 1, soon(), work), queue.submit('acme', 1, soon(), work)];
  await assert.rejects(
    queue.submit('acme', 1, soon(), work),
    (error) => isRonError(error, 'busy') && error.retry_after_ms! > 0,
  );
  // [kms I-3] [index I-3] [edge I-3] [kms I-9] [index I-9] [edge I-9]
  assert.equal(queue.busy_total, 1);
  accepted.push(queue.submit('zoo', 1, soon(), work));
  queue.close();
  await assert.rejects(queue.submit('zoo', 1, soon(), work), (error) => isRonError(error, 'draining'));
  await drain();
  assert.deepEqual(await Promise.all(accepted), ['done', 'done', 'done'], 'accepted jobs are served');
});

test('keys that fill the queue give up places to a key with fewer jobs; a displaced request is answered once', async () => {
  const { queue, work, drain } = setUp(64);
  const answers: string[] = [];
  const submit = (key: string, pieces: number): Promise<unknown> =>
    queue
      .submitAll(
        key,
        Array.from({ length: pieces }, () => ({ cost_us: 1, work })),
        soon(),
      )
      .then(
        () => answers.push(`${key} done`),
        (error: unknown) => answers.push(`${key} ${isRonError(error) ? error.code : String(error)}`),
      );
  const requests: Promise<unknown>[] = [];
  for (let flood = 0; flood < 10; flood++) for (let at = 0; at < 70; at++) requests.push(submit('flood' + flood, 1));
  const depth = queue.depth;
  requests.push(submit('zoo', 1), submit('zoo', 1));
  assert.ok(queue.depth >= depth && queue.depth <= 64, `${queue.depth} wait`);
  const busy_total = queue.busy_total;
  const full = queue.depth;
  requests.push(submit('piecewise', queue.pieces_max));
  assert.equal(queue.busy_total, busy_total + 1, 'refused: the keys cannot give up so many places');
  assert.equal(queue.depth, full, 'no job is displaced in vain');
  await drain();
  await Promise.all(requests);
  assert.equal(answers.length, 703);
  assert.deepEqual(
    answers.filter((answer) => answer.startsWith('zoo')),
    ['zoo done', 'zoo done'],
  );
  assert.equal(answers.filter((answer) => answer.endsWith('busy')).length, queue.busy_total);
});

test('a request in pieces displaces as many jobs, and takes out whole requests', async () => {
  const { queue, drain } = setUp(16);
  const begun: Record<string, number> = {};
  const submit = (key: string, pieces: number): Promise<string> => {
    const work = async (): Promise<void> => void (begun[key] = (begun[key] ?? 0) + 1);
    const all = Array.from({ length: pieces }, () => ({ cost_us: 1, work }));
    return queue.submitAll(key, all, soon()).then(
      () => 'done',
      (error: unknown) => (isRonError(error) ? error.code : String(error)),
    );
  };
  const flood = [submit('flood', 4), submit('flood', 2), submit('flood', 2)];
  const others = [submit('b', 1), submit('b', 1), submit('b', 1), submit('c', 1), submit('c', 1)];
  const zoo = submit('zoo', 3);
  assert.ok(queue.depth <= 16);
  await drain();
  assert.equal(await zoo, 'done');
  assert.deepEqual(await Promise.all(flood), ['done', 'busy', 'busy']);
  assert.deepEqual(new Set(await Promise.all(others)), new Set(['done']));
  assert.deepEqual([begun['flood'], begun['zoo']], [4, 3]);
  assert.equal(queue.busy_total, 2);
});

test('a job that is cancelled while it waits leaves at once, and its work does not begin', async () => {
  const { queue, drain } = setUp();
  const deadline = soon();
  let done = 0;
  const left = assert.rejects(
    queue.submit('acme', 1, deadline, async () => (done += 1)),
    /disconnected/,
  );
  assert.equal(queue.depth, 1);
  deadline.cancel(new Error('disconnected'));
  assert.equal(queue.depth, 0);
  await left;
  await drain();
  assert.equal(done, 0);
  await assert.rejects(
    setUp().queue.submit('acme', 1, deadline, async () => 1),
    /disconnected/,
  );
});

test('a job is answered on time even if no worker comes', async () => {
  const time = new VirtualSched();
  await time.during(async () => {
    const { queue, work } = setUp();
    const late = [5, 9].map((budget_ms) =>
      assert.rejects(queue.submit('acme', 1, Deadline.after('sign', budget_ms), work), { code: 'timeout' }),
    );
    await time.advance(5);
    await late[0];
    assert.equal(queue.depth, 1);
    await time.advance(4);
    await late[1];
    assert.equal(queue.depth, 0);
  });
});

test('the pieces of a request enter together, and the failure of one answers those that wait', async () => {
  const { queue, drain } = setUp(16, 1);
  let begun = 0;
  const piece = (outcome: () => Promise<number>) => ({
    cost_us: 1,
    work: () => {
      begun += 1;
      return outcome();
    },
  });
  const failing = [() => Promise.resolve(1), () => Promise.reject(new Error('broken')), () => Promise.resolve(3)];
  const failed = assert.rejects(queue.submitAll('acme', failing.map(piece), soon()), /broken/);
  const whole = queue.submitAll(
    'zoo',
    [4, 5].map((value) => piece(() => Promise.resolve(value))),
    soon(),
  );
  assert.equal(queue.depth, 5);
  await drain();
  await failed;
  assert.deepEqual(await whole, [4, 5]);
  assert.equal(begun, 4, 'the piece after the failure is not done');
  const many = Array.from({ length: queue.pieces_max + 1 }, () => piece(() => Promise.resolve(0)));
  await assert.rejects(queue.submitAll('acme', many, soon()), /pieces/);
});

test('begun work is never dropped, and its batch is aborted when no submitter waits for the rest of it', async () => {
  const { queue, signals } = setUp();
  const stop = new AbortController();
  const serving = queue.serve({ signal: NEVER, stopping: stop.signal });
  const deadlines = [soon(), soon(), soon()];
  const works = deadlines.map(() => Promise.withResolvers<string>());
  const answers = deadlines.map((deadline, at) => queue.submit('acme', 1, deadline, () => works[at]!.promise));
  while (signals.length === 0) await new Promise((resolve) => void setImmediate(resolve));
  deadlines[0]!.cancel();
  works[1]!.resolve('ended');
  assert.equal(await answers[1], 'ended');
  assert.equal(signals[0]!.aborted, false, 'the third submitter waits');
  deadlines[2]!.cancel(new Error('disconnected'));
  assert.equal(signals[0]!.aborted, true);
  works[0]!.resolve('late');
  works[2]!.reject(new Error('failed late'));
  assert.equal(await answers[0], 'late');
  await assert.rejects(answers[2]!, /failed late/);
  stop.abort();
  await serving;
});

test('the end of the last job with a submitter aborts the rest of the batch as well', async () => {
  const { queue, signals } = setUp();
  const deadline = soon();
  const works = [Promise.withResolvers<string>(), Promise.withResolvers<string>()];
  const answers = works.map(({ promise }, at) => queue.submit('acme', 1, at === 0 ? deadline : soon(), () => promise));
  queue.close();
  const serving = queue.serve({ signal: NEVER, stopping: NEVER });
  while (signals.length === 0) await new Promise((resolve) => void setImmediate(resolve));
  deadline.cancel();
  works[1]!.resolve('ended');
  await answers[1];
  assert.equal(signals[0]!.aborted, true);
  works[0]!.resolve('late');
  await serving;
  await answers[0];
});

test('a batch that cannot be made answers its jobs, and the worker goes on', async () => {
  let made = 0;
  const queue = new BatchQueue('sign', {
    capacity: 8,
    batch_max: 1,
    newBatch: () => {
      made += 1;
      if (made === 1) throw new Error('no backend');
      return { begun: () => undefined };
    },
  });
  const answers = Promise.allSettled([1, 2].map((value) => queue.submit('acme', 1, soon(), async () => value)));
  queue.close();
  await queue.serve({ signal: NEVER, stopping: NEVER });
  const [first, second] = await answers;
  assert.match(String(first!.status === 'rejected' && first!.reason), /no backend/);
  assert.deepEqual(second, { status: 'fulfilled', value: 2 });
});

test('a worker that is aborted leaves no job behind', async () => {
  const { queue, work, drain } = setUp();
  const end = new AbortController();
  const first = queue.serve({ signal: end.signal, stopping: NEVER });
  const answers = Array.from({ length: 6 }, () => queue.submit('acme', 1, soon(), work));
  // It has been woken and gathers jobs.
  await Promise.resolve();
  end.abort(new Error('killed'));
  await assert.rejects(first, /killed/);
  await drain();
  assert.equal((await Promise.all(answers)).length, 6);
});

test('jobs that no worker took can be aborted', async () => {
  const { queue, work } = setUp();
  const waiting = queue.submit('acme', 1, soon(), work);
  assert.equal(queue.abortQueued(new Error('stopped')), 1);
  await assert.rejects(waiting, /stopped/);
  assert.equal(queue.depth, 0);
});

test('a request that would not be done in time is refused, by the measured speed', async () => {
  const time = new VirtualSched();
  await time.during(async () => {
    const { queue } = setUp(512, 1);
    const stop = new AbortController();
    const serving = queue.serve({ signal: NEVER, stopping: stop.signal });
    const slow = async (): Promise<void> => {
      const { promise, resolve } = Promise.withResolvers<void>();
      time.timer(25, resolve, 'work');
      await promise;
    };
    /** The gathering of a batch takes a turn of the event loop. */
    const advance = async (jobs: number): Promise<void> => {
      for (let at = 0; at < jobs; at++) {
        await time.settle();
        await time.settle();
        await time.advance(25);
      }
    };
    const jobs = Array.from({ length: 60 }, () => queue.submit('acme', 1000, soon(), slow));
    await advance(10);
    assert.ok(queue.depth > 40, `${queue.depth} wait`);
    const hasty = queue.submit('acme', 1000, Deadline.after('sign', 500), slow);
    await assert.rejects(hasty, (error) => isRonError(error, 'busy') && error.retry_after_ms! > 500);
    let isServed = false;
    const other = queue.submit('zoo', 1000, Deadline.after('sign', 500), slow).then(() => (isServed = true));
    await advance(8);
    assert.ok(isServed, 'a key without waiting jobs is let in and served in its turn');
    await advance(60);
    assert.equal(queue.depth, 0);
    await Promise.all([other, ...jobs]);
    stop.abort();
    await serving;
  });
});
