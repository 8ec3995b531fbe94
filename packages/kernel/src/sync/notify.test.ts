import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isRonError } from '../errors.ts';
import { NEVER } from './never.ts';
import { VirtualSched } from '../virtual-sched.ts';
import { Notify } from './notify.ts';

test('a notification wakes the longest waiter, and one of them only', async () => {
  const notify = new Notify('test');
  const woken: string[] = [];
  const first = notify.notified(NEVER).then(() => woken.push('first'));
  const second = notify.notified(NEVER).then(() => woken.push('second'));
  notify.notifyOne();
  await first;
  assert.deepEqual(woken, ['first']);
  notify.notifyOne();
  await second;
});

test('notifications without a waiter store one permit', async () => {
  const clock = new VirtualSched();
  await clock.during(async () => {
    const notify = new Notify('test');
    notify.notifyOne();
    notify.notifyOne();
    assert.equal(await notify.notified(NEVER), true);
    const waiting = notify.notified(NEVER, { within_ms: 30 });
    await clock.advance(29);
    assert.equal(clock.timers.length, 1, 'the second call waits');
    await clock.advance(1);
    assert.equal(await waiting, false);
    assert.equal(clock.timers.length, 0);
  });
});

test('a wait that timed out or was aborted takes no permit with it', async () => {
  const clock = new VirtualSched();
  await clock.during(async () => {
    const notify = new Notify('test');
    const stop = new AbortController();
    const aborted = notify.notified(stop.signal);
    stop.abort(new Error('stop'));
    await assert.rejects(aborted, /stop/);
    const late = notify.notified(NEVER, { within_ms: 5 });
    await clock.advance(5);
    assert.equal(await late, false);
    notify.notifyOne();
    await assert.rejects(notify.notified(stop.signal), /stop/);
    assert.equal(await notify.notified(NEVER), true, 'the permit is still there');
  });
});

test('a waiter that is aborted right after it was woken passes the notification on', async () => {
  const notify = new Notify('test');
  const stop = new AbortController();
  const aborted = notify.notified(stop.signal);
  const next = notify.notified(NEVER);
  notify.notifyOne();
  stop.abort(new Error('stop'));
  await assert.rejects(aborted, /stop/);
  assert.equal(await next, true);

  const other = new AbortController();
  const alone = notify.notified(other.signal);
  notify.notifyOne();
  other.abort(new Error('stop'));
  await assert.rejects(alone, /stop/);
  assert.equal(await notify.notified(NEVER), true, 'the permit is stored');
});

test('a waiter beyond waiters_max is refused', async () => {
  const notify = new Notify('test', { waiters_max: 1 });
  const waiting = notify.notified(NEVER);
  await assert.rejects(notify.notified(NEVER), (error) => isRonError(error, 'busy'));
  notify.notifyOne();
  assert.equal(await waiting, true);
});
