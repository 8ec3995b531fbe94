import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isRonError, NEVER, RonError } from '@ron/kernel';
import { packed, unpacked } from './packed.ts';
import { ThreadBatches } from './thread-batches.ts';

/** Batches that end when the test ends them. */
function setUp(threads = 2, queue_max = 100) {
  const dispatched: { items: string[]; end: (error?: unknown) => void }[] = [];
  const run = (fn: string, args: readonly unknown[]): Promise<unknown> => {
    if (fn === 'ready') return Promise.resolve();
    const items = args[0] as string[];
    const { promise, resolve, reject } = Promise.withResolvers<unknown>();
    const end = (error?: unknown): void =>
      error === undefined ? resolve(items.map((item) => `${item}!`)) : reject(error);
    dispatched.push({ items, end });
    return promise;
  };
  const batches = new ThreadBatches<string, string>({
    name: 'test',
    threads,
    queue_max,
    module: new URL('./crypto-thread.ts', import.meta.url),
    fn: 'shout',
    pack: (items) => [items],
    unpack: (answer: string[]) => answer,
    pool: { run: run as never, close: async () => undefined },
  });
  assert.equal(batches.isReady, false, 'no thread is running yet');
  return { batches, dispatched };
}

const turn = (): Promise<void> => new Promise((resolve) => void setImmediate(() => setImmediate(resolve)));

test('calls in one turn share a batch, and each gets its own results', async () => {
  const { batches, dispatched } = setUp();
  const answers = [batches.run(['a', 'b'], 10, NEVER), batches.run(['c'], 10, NEVER)];
  await turn();
  assert.deepEqual(
    dispatched.map(({ items }) => items),
    [['a', 'b', 'c']],
  );
  dispatched[0]!.end();
  assert.deepEqual(await Promise.all(answers), [['a!', 'b!'], ['c!']]);
});

test('calls during a batch wait for the next; enough work starts another thread, up to the limit', async () => {
  const { batches, dispatched } = setUp(2);
  const answers = [batches.run(['a'], 10, NEVER)];
  await turn();
  answers.push(batches.run(['b'], 10, NEVER), batches.run(['c'], 10, NEVER));
  await turn();
  assert.equal(dispatched.length, 1, 'little work waits for the running batch');
  answers.push(batches.run(['d'], 3000, NEVER), batches.run(['e'], 3000, NEVER), batches.run(['f'], 10, NEVER));
  await turn();
  assert.deepEqual(dispatched[1]!.items, ['b', 'c', 'd'], 'the cost of a batch is bounded');
  assert.equal(dispatched.length, 2);
  dispatched[0]!.end();
  await turn();
  assert.deepEqual(dispatched[2]!.items, ['e']);
  dispatched[1]!.end();
  dispatched[2]!.end();
  await turn();
  dispatched[3]!.end();
  assert.deepEqual((await Promise.all(answers)).flat(), ['a!', 'b!', 'c!', 'd!', 'e!', 'f!']);
});

test('an aborted call is not computed', async () => {
  const { batches, dispatched } = setUp(1);
  const first = batches.run(['a'], 10, NEVER);
  await turn();
  const client = new AbortController();
  const left = batches.run(['b'], 10, client.signal);
  const stays = batches.run(['c'], 10, NEVER);
  client.abort(new Error('left'));
  dispatched[0]!.end();
  await Promise.all([first, assert.rejects(left, /left/)]);
  await turn();
  assert.deepEqual(dispatched[1]!.items, ['c']);
  dispatched[1]!.end();
  await stays;
});

test('a batch whose thread died is retried once; a failure rejects the calls of its batch only', async () => {
  const { batches, dispatched } = setUp(1);
  const died = new RonError('internal', 'a thread ended');
  const saved = batches.run(['a'], 10, NEVER);
  await turn();
  dispatched[0]!.end(died);
  await turn();
  dispatched[1]!.end();
  assert.deepEqual(await saved, ['a!']);
  const lost = [batches.run(['b'], 10, NEVER), batches.run(['c'], 10, NEVER)];
  const outcomes = Promise.allSettled(lost);
  await turn();
  dispatched[2]!.end(died);
  await turn();
  dispatched[3]!.end(died);
  assert.deepEqual(
    (await outcomes).map(({ status }) => status),
    ['rejected', 'rejected'],
  );
  const next = batches.run(['d'], 10, NEVER);
  await turn();
  dispatched[4]!.end();
  assert.deepEqual(await next, ['d!']);
});

test('calls beyond the queue limit are refused immediately', async () => {
  const { batches, dispatched } = setUp(1, 2);
  const first = [batches.run(['a'], 10, NEVER), batches.run(['b'], 10, NEVER)];
  await assert.rejects(batches.run(['c'], 10, NEVER), (error) => isRonError(error, 'busy'));
  await turn();
  dispatched[0]!.end();
  await Promise.all(first);
});

test('pieces of any length, including zero, survive packing', () => {
  for (const pieces of [[], [''], ['a', '', 'bcd']]) {
    const bytes = pieces.map((text) => Buffer.from(text));
    assert.deepEqual(unpacked(packed(bytes)), bytes);
  }
});
