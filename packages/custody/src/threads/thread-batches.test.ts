import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isRonError, NEVER, RonError } from '@ron/kernel';
import { packed, unpacked } from './packed.ts';
import { ThreadBatches } from './thread-batches.ts';

/** Hops that end when they are told to. */
function setUp(threads = 2, queue_max = 100) {
  const hops: { items: string[]; end: (error?: unknown) => void }[] = [];
  const run = (fn: string, args: readonly unknown[]): Promise<unknown> => {
    if (fn === 'ready') return Promise.resolve();
    const items = args[0] as string[];
    const { promise, resolve, reject } = Promise.withResolvers<unknown>();
    const end = (error?: unknown): void =>
      error === undefined ? resolve(items.map((item) => `${item}!`)) : reject(error);
    hops.push({ items, end });
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
  assert.equal(batches.isReady, false, 'it has to start');
  return { batches, hops };
}

const turn = (): Promise<void> => new Promise((resolve) => void setImmediate(() => setImmediate(resolve)));

test('what is asked for in one turn goes with one hop, and each gets its own', async () => {
  const { batches, hops } = setUp();
  const answers = [batches.run(['a', 'b'], 10, NEVER), batches.run(['c'], 10, NEVER)];
  await turn();
  assert.deepEqual(
    hops.map(({ items }) => items),
    [['a', 'b', 'c']],
  );
  hops[0]!.end();
  assert.deepEqual(await Promise.all(answers), [['a!', 'b!'], ['c!']]);
});

test('what comes meanwhile waits and goes together; much of it takes another thread, but no more than there are', async () => {
  const { batches, hops } = setUp(2);
  const answers = [batches.run(['a'], 10, NEVER)];
  await turn();
  answers.push(batches.run(['b'], 10, NEVER), batches.run(['c'], 10, NEVER));
  await turn();
  assert.equal(hops.length, 1, 'a little waits for the hop that is under way');
  answers.push(batches.run(['d'], 3000, NEVER), batches.run(['e'], 3000, NEVER), batches.run(['f'], 10, NEVER));
  await turn();
  assert.deepEqual(hops[1]!.items, ['b', 'c', 'd'], 'a hop is bounded by what it costs');
  assert.equal(hops.length, 2);
  hops[0]!.end();
  await turn();
  assert.deepEqual(hops[2]!.items, ['e']);
  hops[1]!.end();
  hops[2]!.end();
  await turn();
  hops[3]!.end();
  assert.deepEqual((await Promise.all(answers)).flat(), ['a!', 'b!', 'c!', 'd!', 'e!', 'f!']);
});

test('what nobody waits for any more is not computed', async () => {
  const { batches, hops } = setUp(1);
  const first = batches.run(['a'], 10, NEVER);
  await turn();
  const client = new AbortController();
  const left = batches.run(['b'], 10, client.signal);
  const stays = batches.run(['c'], 10, NEVER);
  client.abort(new Error('left'));
  hops[0]!.end();
  await Promise.all([first, assert.rejects(left, /left/)]);
  await turn();
  assert.deepEqual(hops[1]!.items, ['c']);
  hops[1]!.end();
  await stays;
});

test('a hop whose thread died is made once more, and only once; a failure is told to each and to no other', async () => {
  const { batches, hops } = setUp(1);
  const died = new RonError('internal', 'a thread ended');
  const saved = batches.run(['a'], 10, NEVER);
  await turn();
  hops[0]!.end(died);
  await turn();
  hops[1]!.end();
  assert.deepEqual(await saved, ['a!']);
  const lost = [batches.run(['b'], 10, NEVER), batches.run(['c'], 10, NEVER)];
  const outcomes = Promise.allSettled(lost);
  await turn();
  hops[2]!.end(died);
  await turn();
  hops[3]!.end(died);
  assert.deepEqual(
    (await outcomes).map(({ status }) => status),
    ['rejected', 'rejected'],
  );
  const next = batches.run(['d'], 10, NEVER);
  await turn();
  hops[4]!.end();
  assert.deepEqual(await next, ['d!']);
});

test('too many are refused at once', async () => {
  const { batches, hops } = setUp(1, 2);
  const first = [batches.run(['a'], 10, NEVER), batches.run(['b'], 10, NEVER)];
  await assert.rejects(batches.run(['c'], 10, NEVER), (error) => isRonError(error, 'busy'));
  await turn();
  hops[0]!.end();
  await Promise.all(first);
});

test('pieces of any length, also none, come out as they went in', () => {
  for (const pieces of [[], [''], ['a', '', 'bcd']]) {
    const bytes = pieces.map((text) => Buffer.from(text));
    assert.deepEqual(unpacked(packed(bytes)), bytes);
  }
});
