import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { Deadline } from '@ron/kernel';
import { Resolver } from './resolve.ts';

const deadline = (): Deadline => Deadline.after('test', 60_000);

test('concurrent lookups of a name are one, and no answer is kept', async () => {
  let lookups = 0;
  const resolver = new Resolver(async () => [String(++lookups)], 2);
  const both = await Promise.all([resolver.resolve('a', deadline()), resolver.resolve('a', deadline())]);
  assert.deepEqual(both, [['1'], ['1']]);
  assert.deepEqual(await resolver.resolve('a', deadline()), ['2']);
});

test('abandoned lookups keep their place until they end; beyond the bound is busy', async () => {
  const pending: (() => void)[] = [];
  const resolver = new Resolver((name) => new Promise((resolve) => void pending.push(() => resolve([name]))), 2);
  for (const name of ['a', 'b'])
    await assert.rejects(resolver.resolve(name, Deadline.after('mine', 5)), { code: 'timeout', op: 'mine' });
  await assert.rejects(resolver.resolve('c', deadline()), { code: 'busy' });
  const joined = resolver.resolve('a', deadline());
  pending[0]!();
  assert.deepEqual(await joined, ['a']);
  const third = resolver.resolve('c', deadline());
  await Promise.resolve();
  pending[2]!();
  assert.deepEqual(await third, ['c']);
});

test('a failure is unreachable, even if it is thrown synchronously, and does not keep its place', async () => {
  const resolver = new Resolver(() => {
    throw new Error('broken');
  }, 1);
  for (const name of ['a', 'a', 'b'])
    await assert.rejects(resolver.resolve(name, deadline()), { code: 'unreachable', op: 'egress_dns' });
});

test('callers that left a lookup that never ends are not kept', async () => {
  const resolver = new Resolver(() => new Promise(() => undefined), 1);
  const left: WeakRef<object>[] = [];
  async function leave(): Promise<void> {
    const reason = new Error('left');
    left.push(new WeakRef(reason));
    const own = new AbortController();
    using mine = Deadline.after('mine', 60_000, { signal: own.signal });
    const work = resolver.resolve('a', mine);
    own.abort(reason);
    await assert.rejects(work, reason);
  }
  for (let caller = 0; caller < 100; caller++) await leave();
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  // A reference that was read in this turn of the event loop stays until its end.
  for (let turn = 0; turn < 20 && alive(left) > 5; turn++) {
    await new Promise((resolve) => void setImmediate(resolve));
    collect();
  }
  assert.ok(alive(left) <= 5, `${alive(left)} of 100 callers are still in memory`);
});

const alive = (refs: readonly WeakRef<object>[]): number => refs.filter((ref) => ref.deref() !== undefined).length;
