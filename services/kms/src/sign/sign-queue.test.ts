import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Deadline, isRonError, Mpsc } from '@ron/kernel';
import { SignQueue, type Turn } from './sign-queue.ts';

const NEVER = new AbortController().signal;
const soon = (): Deadline => Deadline.after('sign', 10_000);

function setUp(capacity = 16, batch_max = 4) {
  const rounds: number[] = [];
  let begun = 0;
  const queue = new SignQueue({
    turns: new Mpsc<Turn>('work_sign', capacity),
    batch_max,
    newRound: () => ({ begun: () => void rounds.push(begun) }),
  });
  const work = async (): Promise<string> => {
    begun += 1;
    return 'done';
  };
  return { queue, work, rounds };
}

test('jobs that come together are taken together, at most so many', async () => {
  const { queue, work, rounds } = setUp();
  const answers = Array.from({ length: 8 }, () => queue.submit('acme', 1, soon(), work));
  const stop = new AbortController();
  const serving = queue.serve({ signal: NEVER, stopping: stop.signal });
  assert.deepEqual(new Set(await Promise.all(answers)), new Set(['done']));
  assert.deepEqual(rounds, [4, 8]);
  stop.abort();
  await serving;
});

test('a full queue refuses at once, with a time to come back', async () => {
  const { queue, work } = setUp(4);
  const accepted = [queue.submit('acme', 1, soon(), work), queue.submit('acme', 1, soon(), work)];
  await assert.rejects(
    queue.submit('acme', 1, soon(), work),
    (error) => isRonError(error, 'busy') && error.retry_after_ms! > 0,
  );
  assert.equal(queue.busy_total, 1);
  accepted.push(queue.submit('zoo', 1, soon(), work));
  queue.close();
  await assert.rejects(queue.submit('zoo', 1, soon(), work), (error) => isRonError(error, 'draining'));
  await queue.serve({ signal: NEVER, stopping: NEVER });
  assert.deepEqual(await Promise.all(accepted), ['done', 'done', 'done'], 'what was accepted is served');
});

test('a job whose time is over is answered and not done', async () => {
  const { queue } = setUp();
  const gone = soon();
  let done = 0;
  const late = queue.submit('acme', 1, gone, async () => (done += 1));
  gone.cancel(new Error('the client left'));
  queue.close();
  await Promise.all([assert.rejects(late, /the client left/), queue.serve({ signal: NEVER, stopping: NEVER })]);
  assert.equal(done, 0);
});

test('a signer that is ended leaves no job without a turn', async () => {
  const { queue, work } = setUp();
  const end = new AbortController();
  const first = queue.serve({ signal: end.signal, stopping: NEVER });
  const answers = Array.from({ length: 6 }, () => queue.submit('acme', 1, soon(), work));
  // It has been woken with a turn and gathers more.
  await Promise.resolve();
  end.abort(new Error('killed'));
  await assert.rejects(first, /killed/);
  queue.close();
  await queue.serve({ signal: NEVER, stopping: NEVER });
  assert.equal((await Promise.all(answers)).length, 6);
});

test('what nobody took can be sent away', async () => {
  const { queue, work } = setUp();
  const waiting = queue.submit('acme', 1, soon(), work);
  assert.equal(queue.abortQueued(new Error('stopped')), 1);
  await assert.rejects(waiting, /stopped/);
});
