import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Admission, sched } from '@ron/kernel';
import { STARTED_MAX, FairScheduler } from './fair-scheduler.ts';

const nextPass = (): Promise<void> => sched.pause('test');

test('an address begins so many requests in a pass; another one does not wait for the rest', async () => {
  const scheduler = new FairScheduler();
  const admission = new Admission({ inflight_max: 1, connections_max: 1, connections_per_ip_max: 1 });
  const [one, two] = [scheduler.shareOf(admission.hold('192.0.2.1')), scheduler.shareOf(admission.hold('192.0.2.2'))];
  assert.equal(scheduler.shareOf(admission.hold('::ffff:192.0.2.1')), one);
  const begun: number[] = [];
  const at_once: number[] = [];
  for (let n = 0; n < 5 * STARTED_MAX; n += 1) {
    if (scheduler.tryBegin(one)) at_once.push(n);
    else scheduler.later(one, () => void begun.push(n));
  }
  assert.equal(at_once.length, 2 * STARTED_MAX, 'the pass in which a flood begins');
  assert.ok(scheduler.tryBegin(two));
  for (let pass = 1; pass <= 3; pass += 1) {
    await nextPass();
    assert.equal(begun.length, pass * STARTED_MAX);
    assert.equal(scheduler.tryBegin(one), false, 'its share of this pass is used up');
    assert.ok(scheduler.tryBegin(two));
  }
  assert.deepEqual(
    begun,
    begun.toSorted((a, b) => a - b),
    'in the order in which they came',
  );
  await nextPass();
  assert.ok(scheduler.tryBegin(one));
});

test('requests that begin others leave room for the rest of the loop between them', async () => {
  const scheduler = new FairScheduler();
  const share = scheduler.shareOf(undefined);
  assert.notEqual(scheduler.shareOf(undefined), share);
  let begun = 0;
  const again = (): void => {
    begun += 1;
    if (begun < 5) scheduler.later(share, again);
  };
  scheduler.later(share, again);
  for (let pass = 1; pass <= 5; pass += 1) {
    await nextPass();
    assert.equal(begun, pass);
  }
});
