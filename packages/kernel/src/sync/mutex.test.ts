import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isRonError } from '../errors.ts';
import { NEVER } from './never.ts';
import { KeyedMutex } from './keyed-mutex.ts';
import { Mutex } from './mutex.ts';

test('a section that throws releases the mutex and rejects its caller only', async () => {
  const mutex = new Mutex('test', { waiters_max: 1 });
  const failing = mutex.run(NEVER, () => Promise.reject(new Error('broken')));
  const next = mutex.run(NEVER, () => Promise.resolve('next'));
  await assert.rejects(failing, /broken/);
  assert.equal(await next, 'next');
  assert.equal(mutex.isHeld, false);
});

test('a caller beyond waiters_max is refused with busy and a time to come back', async () => {
  const mutex = new Mutex('test', { waiters_max: 1 });
  const { promise, resolve } = Promise.withResolvers<void>();
  const held = mutex.run(NEVER, () => promise);
  const waiting = mutex.run(NEVER, () => Promise.resolve());
  await assert.rejects(
    mutex.run(NEVER, () => Promise.resolve()),
    (error) => isRonError(error, 'busy') && error.retry_after_ms === 1000,
  );
  resolve();
  await Promise.all([held, waiting]);
});

test('an aborted signal refuses before the section begins', async () => {
  const mutex = new Mutex('test', { waiters_max: 1 });
  const reason = new Error('gone');
  await assert.rejects(
    mutex.run(AbortSignal.abort(reason), () => assert.fail('began')),
    (error) => error === reason,
  );
});

test('a waiter that is aborted after the hand-over leaves, and the next waiter gets the mutex', async () => {
  let left = 0;
  for (let turns = 0; turns < 16; turns++) {
    const mutex = new Mutex('test', { waiters_max: 2 });
    const keyed = new KeyedMutex('test', { keys_max: 1, waiters_max: 2 });
    const run = (signal: AbortSignal, section: () => Promise<unknown>): Promise<unknown>[] => [
      mutex.run(signal, section),
      keyed.run('key', signal, section),
    ];
    const gate = Promise.withResolvers<void>();
    const leaving = new AbortController();
    const held = run(NEVER, () => gate.promise);
    const waiting = run(leaving.signal, async () => assert.equal(leaving.signal.aborted, false, 'the section began'));
    const next = run(NEVER, () => Promise.resolve('next'));
    gate.resolve();
    for (let turn = 0; turn < turns; turn++) await Promise.resolve();
    const reason = new Error('gone');
    leaving.abort(reason);
    for (const outcome of await Promise.allSettled(waiting)) {
      if (outcome.status === 'rejected') assert.equal(outcome.reason, reason);
      left += Number(outcome.status === 'rejected');
    }
    assert.deepEqual(await Promise.all(next), ['next', 'next']);
    await Promise.all(held);
    assert.deepEqual([mutex.isHeld, keyed.size], [false, 0]);
  }
  assert.ok(left > 2 && left < 32, `${left} of 32 left`);
});

test('the signal of close ends that wait only, and close twice is allowed', async () => {
  const mutex = new Mutex('test', { waiters_max: 1 });
  const { promise, resolve } = Promise.withResolvers<void>();
  const held = mutex.run(NEVER, () => promise);
  const stop = new AbortController();
  const impatient = mutex.close(stop.signal);
  const patient = mutex.close();
  stop.abort(new Error('no time'));
  await assert.rejects(impatient, /no time/);
  resolve();
  await Promise.all([held, patient]);
  await mutex.close();
  await assert.rejects(
    mutex.run(NEVER, () => Promise.resolve()),
    (error) => isRonError(error, 'closed'),
  );
});
