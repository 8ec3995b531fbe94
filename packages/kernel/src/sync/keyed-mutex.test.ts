import assert from 'node:assert/strict';
import { getEventListeners } from 'node:events';
import { test } from 'node:test';
import { isRonError, RonError } from '../errors.ts';
import { NEVER } from './never.ts';
import { KeyedMutex } from './keyed-mutex.ts';

const aborted = (signal: AbortSignal): Promise<void> =>
  new Promise((resolve) => signal.addEventListener('abort', () => resolve(), { once: true }));

test('sections of different keys run at the same time', async () => {
  const mutex = new KeyedMutex('test', { keys_max: 2, waiters_max: 1 });
  const both = Promise.withResolvers<void>();
  let running = 0;
  const section = async (): Promise<void> => {
    running += 1;
    if (running === 2) both.resolve();
    await both.promise;
  };
  await Promise.all([mutex.run('a', NEVER, section), mutex.run('b', NEVER, section)]);
  assert.equal(mutex.size, 0);
});

test('a key beyond keys_max and a waiter beyond waiters_max are refused with busy, and preempt nothing', async () => {
  const mutex = new KeyedMutex('test', { keys_max: 1, waiters_max: 0, preempt: true });
  const release = Promise.withResolvers<void>();
  const held = mutex.run('a', NEVER, async (signal) => {
    await release.promise;
    return signal.aborted;
  });
  for (const key of ['a', 'b']) {
    await assert.rejects(
      mutex.run(key, NEVER, () => assert.fail('began')),
      (error) => isRonError(error, 'busy'),
    );
  }
  assert.ok(mutex.isHeld('a') && !mutex.isHeld('b'));
  release.resolve();
  assert.equal(await held, false);
});

test('with preempt the newest caller wins, and begins after the earlier ones have ended', async () => {
  const mutex = new KeyedMutex('test', { keys_max: 1, waiters_max: 8, preempt: true });
  const order: string[] = [];
  const first = mutex.run('a', NEVER, async (signal) => {
    await aborted(signal);
    order.push('first ends');
    throw signal.reason;
  });
  const second = mutex.run('a', NEVER, async (signal) => void order.push(`second, aborted ${signal.aborted}`));
  const third = mutex.run('a', NEVER, async (signal) => void order.push(`third, aborted ${signal.aborted}`));
  await assert.rejects(first, (error) => isRonError(error, 'conflict'));
  await Promise.all([second, third]);
  assert.deepEqual(order, ['first ends', 'second, aborted true', 'third, aborted false']);
});

test('close with a reason aborts sections and rejects waiters; without one it serves them', async () => {
  for (const reason of [new RonError('draining', 'shutdown'), undefined]) {
    const mutex = new KeyedMutex('test', { keys_max: 1, waiters_max: 8 });
    const release = Promise.withResolvers<void>();
    const held = mutex.run('a', NEVER, async (signal) => {
      await (reason === undefined ? release.promise : aborted(signal));
      return signal.reason as unknown;
    });
    const waiting = mutex.run('a', NEVER, () => Promise.resolve('served')).catch((error: unknown) => error);
    const closed = mutex.close(reason);
    release.resolve();
    assert.equal(await held, reason);
    assert.equal(await waiting, reason ?? 'served');
    await closed;
    await assert.rejects(
      mutex.run('a', NEVER, () => assert.fail('began')),
      (error) => isRonError(error, reason === undefined ? 'closed' : 'draining'),
    );
  }
});

test('a key that is no longer used leaves no listener on the signals of its callers', async () => {
  const mutex = new KeyedMutex('test', { keys_max: 1, waiters_max: 8 });
  const { signal } = new AbortController();
  for (let round = 0; round < 10; round++) {
    await Promise.all([1, 2, 3].map(() => mutex.run('a', signal, () => Promise.resolve())));
  }
  assert.equal(getEventListeners(signal, 'abort').length, 0);
});
