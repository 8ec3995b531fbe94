import assert from 'node:assert/strict';
import { getEventListeners } from 'node:events';
import { test } from 'node:test';
import { isRonError } from '../errors.ts';
import { NEVER } from '../sync/never.ts';
import { FairSemaphore } from './fair-semaphore.ts';

const COST = 100;
const turn = (): Promise<void> => new Promise((resolve) => void setImmediate(resolve));

/** Work that ends when the test says so. */
function setUp(capacity = 100, limit = 3 * COST) {
  const begun: { name: string; end: (error?: Error) => void }[] = [];
  const semaphore = new FairSemaphore('verify', { limit, capacity, keys_max: 16, quantum: COST });
  const call = (key: string, name = key, signal = NEVER, cost = COST): Promise<string> =>
    semaphore.run(key, cost, signal, () => {
      const { promise, resolve, reject } = Promise.withResolvers<string>();
      begun.push({ name, end: (error) => (error === undefined ? resolve(name) : reject(error)) });
      return promise;
    });
  const endAll = async (): Promise<void> => {
    for (let at = 0; at < begun.length || semaphore.depth > 0; at++) {
      begun[at]!.end();
      await turn();
    }
  };
  return { semaphore, begun, call, endAll };
}

test('work begins until the limit is reached, and dear work counts for more', async () => {
  const { semaphore, begun, call, endAll } = setUp();
  const calls = [call('a'), call('a', 'dear', NEVER, 10 * COST), call('a', 'third')];
  assert.deepEqual(
    begun.map(({ name }) => name),
    ['a', 'dear'],
  );
  assert.deepEqual([semaphore.in_progress, semaphore.depth], [11 * COST, 1]);
  begun[0]!.end();
  await turn();
  assert.equal(begun.length, 2, 'the dear call alone is over the limit');
  await endAll();
  assert.deepEqual(await Promise.all(calls), ['a', 'dear', 'third']);
  assert.equal(semaphore.in_progress, 0);
});

test('a key is served between the calls of a flood, and each call gets its own result', async () => {
  const { begun, call, endAll } = setUp();
  const flood = Array.from({ length: 40 }, (_, at) => call('flood', `flood ${at}`));
  const zoo = [call('zoo', 'zoo 0'), call('zoo', 'zoo 1')];
  await endAll();
  assert.deepEqual(await Promise.all(zoo), ['zoo 0', 'zoo 1']);
  assert.deepEqual(
    await Promise.all(flood),
    Array.from(flood, (_, at) => `flood ${at}`),
  );
  const places = begun.flatMap(({ name }, at) => (name.startsWith('zoo') ? [at] : []));
  assert.ok(Math.max(...places) < 8, `served at ${String(places)}`);
});

test('a key that holds its share is refused and counted, another is let in', async () => {
  const { semaphore, call, endAll } = setUp(10);
  const flood = Promise.allSettled(Array.from({ length: 20 }, () => call('flood')));
  const zoo = call('zoo');
  await endAll();
  const refused = (await flood).filter(({ status }) => status === 'rejected');
  for (const each of refused) assert.ok(each.status === 'rejected' && isRonError(each.reason, 'busy'));
  // Three in progress, five wait: half of ten.
  assert.equal(refused.length, 12);
  assert.equal(semaphore.busy_total, 12);
  assert.equal(await zoo, 'zoo');
});

test('keys that fill the queue give up places to a key with fewer calls, and displaced calls get busy once', async () => {
  const { semaphore, call, endAll } = setUp(64, COST);
  const outcomes: Record<string, string[]> = {};
  const note = (key: string): Promise<unknown> =>
    call(key).then(
      () => (outcomes[key] ??= []).push('served'),
      (error: unknown) => (outcomes[key] ??= []).push(isRonError(error) ? error.code : String(error)),
    );
  const calls = [note('busy worker')];
  for (let flood = 0; flood < 10; flood++) for (let at = 0; at < 70; at++) calls.push(note(`flood ${flood}`));
  assert.ok(semaphore.depth <= 64);
  const depth = semaphore.depth;
  // By the random seed a key may share the bucket of a flood; not all of three.
  const few = ['zoo', 'emu', 'yak'];
  for (const key of few) for (let at = 0; at < 3; at++) calls.push(note(key));
  assert.ok(semaphore.depth >= depth && semaphore.depth <= 64);
  await endAll();
  await Promise.all(calls);
  assert.ok(few.some((key) => outcomes[key]!.every((outcome) => outcome === 'served')));
  const answers = Object.values(outcomes).flat();
  assert.equal(answers.length, 710);
  assert.equal(answers.filter((answer) => answer === 'busy').length, semaphore.busy_total);
  assert.ok(answers.every((answer) => answer === 'busy' || answer === 'served'));
  for (let flood = 0; flood < 10; flood++) {
    const served = outcomes[`flood ${flood}`]!.filter((answer) => answer === 'served').length;
    assert.ok(served >= 3, `flood ${flood} has a share: ${served}`);
  }
});

test('a cost that is not a number is refused and breaks nothing', async () => {
  const { semaphore, call, endAll } = setUp();
  for (const cost of [Number.NaN, Infinity, -1]) await assert.rejects(call('a', 'a', NEVER, cost), /cost/);
  const good = call('a');
  await endAll();
  assert.equal(await good, 'a');
  assert.equal(semaphore.in_progress, 0);
});

test('a call that is aborted while it waits leaves at once, and its work does not begin', async () => {
  const { semaphore, begun, call, endAll } = setUp(100, COST);
  const client = new AbortController();
  const first = call('a');
  const left = assert.rejects(call('a', 'left', client.signal), /disconnected/);
  const stays = call('a', 'stays');
  client.abort(new Error('disconnected'));
  assert.equal(semaphore.depth, 1);
  await left;
  assert.equal(getEventListeners(client.signal, 'abort').length, 0);
  await endAll();
  await Promise.all([first, stays]);
  assert.ok(!begun.some(({ name }) => name === 'left'));
  await assert.rejects(call('a', 'late', client.signal), /disconnected/);
});

test('a permit that was granted removes its abort listener, and failed work gives the permit back', async () => {
  const { semaphore, begun, call, endAll } = setUp(100, COST);
  const client = new AbortController();
  const failing = assert.rejects(call('a'), /broken/);
  const next = call('a', 'next', client.signal);
  assert.equal(getEventListeners(client.signal, 'abort').length, 1);
  begun[0]!.end(new Error('broken'));
  await failing;
  await turn();
  assert.equal(getEventListeners(client.signal, 'abort').length, 0);
  await endAll();
  assert.equal(await next, 'next');
  assert.equal(semaphore.in_progress, 0);
});

test('a call that is aborted after it got its permit gives it back, and its work does not begin', async () => {
  const { semaphore, begun, call } = setUp(100, 2 * COST);
  const client = new AbortController();
  const first = call('a', 'first', NEVER, 2 * COST);
  // Both get their permits in one step; the work of the first aborts the second.
  const aborting = semaphore.run('a', COST, NEVER, async () => client.abort(new Error('disconnected')));
  const left = semaphore.run('a', COST, client.signal, async () => assert.fail('the work began'));
  const next = semaphore.run('a', COST, NEVER, async () => 'next');
  begun[0]!.end();
  await assert.rejects(left, /disconnected/);
  assert.equal(await next, 'next');
  await Promise.all([first, aborting]);
  assert.equal(semaphore.in_progress, 0);
});

test('close rejects the calls that wait and those that come later; work in progress goes on', async () => {
  const { semaphore, begun, call } = setUp(100, COST);
  const first = call('a');
  const waiting = assert.rejects(call('a'), (error) => isRonError(error, 'draining'));
  semaphore.close();
  semaphore.close();
  await waiting;
  await assert.rejects(call('a'), (error) => isRonError(error, 'draining'));
  begun[0]!.end();
  assert.equal(await first, 'a');
});
