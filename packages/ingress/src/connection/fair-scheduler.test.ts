import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Admission, sched } from '@ron/kernel';
import { STARTED_MAX, FairScheduler } from './fair-scheduler.ts';

const nextPass = (): Promise<void> => sched.pause('test');

test('an address starts a limited number of requests per loop iteration, and does not delay another address', async () => {
  const scheduler = new FairScheduler();
  const admission = new Admission({ inflight_max: 1, connections_max: 1, connections_per_ip_max: 1 });
  const [one, two] = [scheduler.shareOf(admission.hold('192.0.2.1')), scheduler.shareOf(admission.hold('192.0.2.2'))];
  assert.equal(scheduler.shareOf(admission.hold('::ffff:192.0.2.1')), one);
  const begun: number[] = [];
  const at_once: number[] = [];
  for (let n = 0; n < 5 * STARTED_MAX; n += 1) {
    if (scheduler.tryStart(one)) at_once.push(n);
    else scheduler.defer(one, () => void begun.push(n));
  }
  assert.equal(at_once.length, 2 * STARTED_MAX, 'the iteration in which a flood begins');
  assert.ok(scheduler.tryStart(two));
  for (let pass = 1; pass <= 3; pass += 1) {
    await nextPass();
    assert.equal(begun.length, pass * STARTED_MAX);
    assert.equal(scheduler.tryStart(one), false, 'its share of this iteration is used up');
    assert.ok(scheduler.tryStart(two));
  }
  assert.deepEqual(
    begun,
    begun.toSorted((a, b) => a - b),
    'in order of arrival',
  );
  await nextPass();
  assert.ok(scheduler.tryStart(one));
});

test('requests that start others yield to the event loop in between', async () => {
  const scheduler = new FairScheduler();
  const share = scheduler.shareOf(undefined);
  assert.notEqual(scheduler.shareOf(undefined), share);
  let begun = 0;
  const again = (): void => {
    begun += 1;
    if (begun < 5) scheduler.defer(share, again);
  };
  scheduler.defer(share, again);
  for (let pass = 1; pass <= 5; pass += 1) {
    await nextPass();
    assert.equal(begun, pass);
  }
});
