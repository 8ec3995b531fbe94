import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Check } from '@ron/custody';
import { isRonError, NEVER } from '@ron/kernel';
import { CheckTurns } from './check-turns.ts';

/** One check of a kind that costs so much that a few of them are all that threads take at a time. */
const check = (name: string): readonly Check[] =>
  [{ part: { alg: 'ml-dsa-87', pubkey_b64: '' }, message: Buffer.from(name), signature: Buffer.alloc(0) }] as const;

/** Threads that end what they have when they are told to. */
function setUp(capacity = 100) {
  const begun: { name: string; end: (error?: Error) => void }[] = [];
  const turns = new CheckTurns(capacity, {
    verify: (checks) => {
      const { promise, resolve, reject } = Promise.withResolvers<boolean[]>();
      const name = Buffer.from(checks[0]!.message).toString();
      begun.push({ name, end: (error) => (error === undefined ? resolve([name.startsWith('good')]) : reject(error)) });
      return promise;
    },
  });
  /** Calls until one has to wait; those that were let in at once. */
  const fill = (): Promise<boolean[]>[] => {
    const first: Promise<boolean[]>[] = [];
    for (;;) {
      const before = begun.length;
      first.push(turns.verify('flood', check('good'), NEVER));
      if (begun.length === before) return first;
    }
  };
  return { turns, begun, fill };
}

test('long messages count for what they cost: fewer of them are with the threads at a time', async () => {
  const { turns, begun } = setUp();
  const long = Buffer.alloc(64 * 1024, 'good');
  const checks = [{ ...check('')[0]!, message: long }];
  const all = Array.from({ length: 40 }, () => turns.verify('flood', checks, NEVER));
  const atOnce = begun.length;
  await endAll(begun, turns);
  await Promise.all(all);
  assert.ok(atOnce <= 20, `${atOnce} of 64 KiB at once`);
});

const turn = (): Promise<void> => new Promise((resolve) => void setImmediate(resolve));

async function endAll(begun: ReturnType<typeof setUp>['begun'], turns: CheckTurns): Promise<void> {
  for (let at = 0; at < begun.length || turns.depth > 0; at++) {
    begun[at]!.end();
    await turn();
  }
}

test('threads get a few milliseconds of work; a tenant comes in between the flood of another, and each gets its own', async () => {
  const { turns, begun, fill } = setUp();
  const flood = fill();
  const atOnce = begun.length;
  assert.ok(atOnce > 1 && atOnce < 100, `${atOnce} at once`);
  for (let at = 0; at < 40; at++) flood.push(turns.verify('flood', check('good'), NEVER));
  const zoo = [turns.verify('zoo', check('bad zoo'), NEVER), turns.verify('zoo', check('good zoo'), NEVER)];
  await endAll(begun, turns);
  assert.deepEqual(await Promise.all(zoo), [[false], [true]]);
  assert.deepEqual(
    (await Promise.all(flood)).flat(),
    Array.from(flood, () => true),
  );
  const places = begun.flatMap(({ name }, at) => (name.endsWith('zoo') ? [at - atOnce] : []));
  assert.ok(Math.max(...places) < 10, `behind ${String(places)} of 41 that waited before`);
});

test('a tenant that holds its share is refused and counted, another is let in', async () => {
  const { turns, begun, fill } = setUp(10);
  const flood = fill();
  for (let at = 0; at < 20; at++) flood.push(turns.verify('flood', check('good'), NEVER));
  const zoo = turns.verify('zoo', check('good'), NEVER);
  const outcomes = Promise.allSettled(flood);
  await endAll(begun, turns);
  const refused = (await outcomes).filter(({ status }) => status === 'rejected');
  for (const each of refused) assert.ok(each.status === 'rejected' && isRonError(each.reason, 'busy'));
  assert.ok(refused.length >= 15, `${refused.length} refused`);
  assert.equal(turns.busy_total, refused.length);
  assert.deepEqual(await zoo, [true]);
});

test('what nobody waits for is not checked; what failed makes room as well; the end answers who waits', async () => {
  const { turns, begun, fill } = setUp();
  const client = new AbortController();
  const first = Promise.allSettled(fill());
  const left = turns.verify('zoo', check('left'), client.signal);
  const stays = turns.verify('zoo', check('good, stays'), NEVER);
  client.abort(new Error('left'));
  const gone = assert.rejects(left, /left/);
  const atOnce = begun.length;
  for (const { end } of begun.slice(0, atOnce)) end(new Error('a hop failed'));
  await gone;
  await turn();
  assert.ok(!begun.some(({ name }) => name === 'left'));
  for (const { end } of begun.slice(atOnce)) end();
  assert.deepEqual(await stays, [true]);
  await first;
  const last = fill();
  turns.close();
  await assert.rejects(last.at(-1)!, (error) => isRonError(error, 'draining'));
  await assert.rejects(turns.verify('zoo', check('good'), NEVER), (error) => isRonError(error, 'draining'));
  for (const { end } of begun) end();
  await Promise.all(last.slice(0, -1));
});
