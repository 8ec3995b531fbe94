import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import { installSched, realSched, RonError } from '@ron/kernel';
import { Availability } from './availability.ts';

/** A clock that stands until it is moved, and jitter of one half. */
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

test('while it is away, one call after each pause is let through; pauses double up to five seconds', (t) => {
  const time = clock(t);
  const availability = new Availability();
  for (const pause_ms of [100, 200, 400, 800, 1600, 3200, 5000, 5000]) {
    // All that were under way.
    for (let call = 0; call < 10; call++) availability.failed(AWAY);
    assert.deepEqual(availability.state(), { ok: false, reason: 'the cable was pulled' });
    time.now_ms += pause_ms - 1;
    assert.ok(isRefused(availability), `${pause_ms} ms are not over`);
    time.now_ms += 1;
    assert.ok(!isRefused(availability));
    assert.ok(isRefused(availability), 'only one finds out');
  }
});

test('the first answer ends it, and the next time begins with the shortest pause', (t) => {
  const time = clock(t);
  const availability = new Availability();
  availability.failed(AWAY);
  availability.failed(AWAY);
  availability.answered();
  assert.deepEqual(availability.state(), { ok: true, reason: '' });
  assert.ok(!isRefused(availability) && !isRefused(availability));
  availability.failed(AWAY);
  time.now_ms += 100;
  assert.ok(!isRefused(availability));
});

test('a refusal says why and when to come back; what cannot mend itself is passed on as it is', (t) => {
  clock(t);
  const availability = new Availability();
  availability.failed(AWAY);
  assert.throws(() => availability.admit(), { code: 'not_ready', message: AWAY.message, retry_after_ms: 100 });
  const wrongPin = new RonError('unhealthy', 'the PIN');
  availability.failed(wrongPin);
  assert.throws(() => availability.admit(), wrongPin);
});
