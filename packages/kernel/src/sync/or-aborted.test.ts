import assert from 'node:assert/strict';
import { getEventListeners } from 'node:events';
import { test } from 'node:test';
import { orAborted } from './or-aborted.ts';

const never = (): Promise<never> => Promise.withResolvers<never>().promise;

test('it gives the outcome of the work and leaves no listener behind', async () => {
  const { signal } = new AbortController();
  assert.equal(await orAborted(Promise.resolve(7), signal), 7);
  await assert.rejects(orAborted(Promise.reject(new Error('no')), signal), /^Error: no$/);
  assert.equal(getEventListeners(signal, 'abort').length, 0);
});

test('work that hangs is left when the signal aborts, and when it was aborted before', { timeout: 5000 }, async () => {
  const controller = new AbortController();
  const waiting = orAborted(never(), controller.signal);
  controller.abort(new Error('enough'));
  await assert.rejects(waiting, /^Error: enough$/);
  await assert.rejects(orAborted(never(), controller.signal), /^Error: enough$/);
  assert.equal(getEventListeners(controller.signal, 'abort').length, 0);
});

test('a failure after the abort is dropped', async () => {
  const controller = new AbortController();
  const work = Promise.withResolvers<void>();
  const waiting = orAborted(work.promise, controller.signal);
  controller.abort(new Error('enough'));
  work.reject(new Error('late'));
  await assert.rejects(waiting, /^Error: enough$/);
});
