import assert from 'node:assert/strict';
import { test } from 'node:test';
import { RonError, sched } from '@ron/kernel';
import { AdminTasks, type TaskWork } from './admin-tasks.ts';

const NEVER = new AbortController().signal;

function tasks(signal = NEVER): AdminTasks {
  return new AdminTasks((_kind, work) => work(signal));
}

/** Work that runs until the test ends it. */
function held(): TaskWork & { at: number; end(): void; fail(error: unknown): void } {
  const parked = sched.park<void>('work');
  const work = {
    at: 0,
    run: () => parked.promise,
    progress: () => ({ at: work.at }),
    end: parked.wake,
    fail: parked.fail,
  };
  return work;
}

const settled = (): Promise<void> => new Promise((resolve) => void setImmediate(resolve));

test('a task is listed while it runs, with its progress, and after it has ended', async () => {
  const all = tasks();
  const work = held();
  const { id, state, started_ms } = all.start('compact', work);
  assert.equal(state, 'running');
  assert.ok(Math.abs(started_ms - Date.now()) < 60_000);
  work.at = 7;
  assert.deepEqual(all.get(id)?.progress, { at: 7 });
  work.at = 9;
  work.end();
  await settled();
  work.at = 11;
  const ended = all.get(id);
  assert.equal(ended?.state, 'done');
  assert.deepEqual(ended?.progress, { at: 9 }, 'as it was at the end');
  assert.ok(ended?.ended_ms !== undefined && ended.ended_ms >= started_ms);
});

test('one task of a kind runs at a time; a second request returns it', async () => {
  const all = tasks();
  const first = held();
  const { id } = all.start('compact', first);
  assert.equal(all.start('compact', held()).id, id);
  assert.notEqual(all.start('scrub', held()).id, id);
  first.end();
  await settled();
  assert.notEqual(all.start('compact', held()).id, id);
  assert.equal(all.list().length, 3);
});

test('a failed task has the reason; a stopped one is not a failure', async () => {
  const all = tasks();
  const [broken, stopped] = [held(), held()];
  const ids = [all.start('compact', broken).id, all.start('scrub', stopped).id];
  broken.fail(new Error('the disk is full'));
  stopped.fail(new RonError('canceled', 'the service stops'));
  await settled();
  assert.deepEqual([all.get(ids[0]!)?.state, all.get(ids[0]!)?.problem], ['failed', 'the disk is full']);
  assert.equal(all.get(ids[1]!)?.state, 'canceled');
});

test('a limited number is kept, the newest first, and a running task is never dropped', async () => {
  const all = tasks();
  const { id } = all.start('long', held());
  for (let at = 0; at < 200; at += 1) {
    all.start(`kind ${at}`, { run: () => Promise.resolve(), progress: () => ({}) });
    await settled();
  }
  const listed = all.list();
  assert.equal(listed.length, 64);
  assert.equal(listed[0]?.kind, 'kind 199');
  assert.equal(listed.at(-1)?.id, id);
  assert.equal(all.get('nothing'), undefined);
});
