import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isRonError } from '../errors.ts';
import { NEVER } from '../never.ts';
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
