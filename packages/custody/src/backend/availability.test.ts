import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import { installSched, realSched, RonError } from '@ron/kernel';
import { Availability } from './availability.ts';

/** A clock that moves only when the test sets it, and a constant jitter of one half. */
function clock(t: TestContext): { now_ms: number } {
  const time = { now_ms: 1000 };
  const previous = installSched({ ...realSched, now_ms: () => time.now_ms, random: () => 0.5 });
  t.after(() => installSched(previous));
  return time;
}

const AWAY = new RonError('not_ready', 'the cable was pulled');
const isRefused = (availability: Availability): boolean => {
  try {
    availability.admit();
    return false;
  } catch {
    return true;
  }
};

test('one probe per backoff interval is admitted while the backend fails; the interval doubles up to 5 s', (t) => {
  const time = clock(t);
  const availability = new Availability();
  for (const pause_ms of [100, 200, 400, 800, 1600, 3200, 5000, 5000]) {
    // All concurrent calls fail.
    for (let call = 0; call < 10; call++) availability.recordFailure(AWAY);
    assert.deepEqual(availability.state(), { ok: false, reason: 'the cable was pulled' });
    time.now_ms += pause_ms - 1;
    assert.ok(isRefused(availability), `${pause_ms} ms have not passed`);
    time.now_ms += 1;
    assert.ok(!isRefused(availability));
    assert.ok(isRefused(availability), 'only one probe is admitted');
  }
});

test('the first success restores the backend and resets the backoff', (t) => {
  const time = clock(t);
  const availability = new Availability();
  availability.recordFailure(AWAY);
  availability.recordFailure(AWAY);
  availability.recordSuccess();
  assert.deepEqual(availability.state(), { ok: true, reason: '' });
  assert.ok(!isRefused(availability) && !isRefused(availability));
  availability.recordFailure(AWAY);
  time.now_ms += 100;
  assert.ok(!isRefused(availability));
});

test('a refusal has the reason and Retry-After; a permanent error is passed on unchanged', (t) => {
  clock(t);
  const availability = new Availability();
  availability.recordFailure(AWAY);
  assert.throws(() => availability.admit(), { code: 'not_ready', message: AWAY.message, retry_after_ms: 100 });
  const wrongPin = new RonError('unhealthy', 'the PIN');
  availability.recordFailure(wrongPin);
  assert.throws(() => availability.admit(), wrongPin);
});
