import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Admission, sched } from '@ron/kernel';
import { BEGUN_MAX, Passes } from './passes.ts';

const nextPass = (): Promise<void> => sched.pause('test');

test('an address begins so many requests in a pass; another one does not wait for the rest', async () => {
  const passes = new Passes();
  const admission = new Admission({ inflight_max: 1, connections_max: 1, connections_per_ip_max: 1 });
  const [one, two] = [passes.shareOf(admission.hold('192.0.2.1')), passes.shareOf(admission.hold('192.0.2.2'))];
  assert.equal(passes.shareOf(admission.hold('::ffff:192.0.2.1')), one);
  const begun: number[] = [];
  const at_once: number[] = [];
  for (let n = 0; n < 5 * BEGUN_MAX; n += 1) {
    if (passes.tryBegin(one)) at_once.push(n);
    else passes.later(one, () => void begun.push(n));
  }
  assert.equal(at_once.length, 2 * BEGUN_MAX, 'the pass in which a flood begins');
  assert.ok(passes.tryBegin(two));
  for (let pass = 1; pass <= 3; pass += 1) {
    await nextPass();
    assert.equal(begun.length, pass * BEGUN_MAX);
    assert.equal(passes.tryBegin(one), false, 'its share of this pass is used up');
    assert.ok(passes.tryBegin(two));
  }
  assert.deepEqual(
    begun,
    begun.toSorted((a, b) => a - b),
    'in the order in which they came',
  );
  await nextPass();
  assert.ok(passes.tryBegin(one));
});

test('requests that begin others leave room for the rest of the loop between them', async () => {
  const passes = new Passes();
  const share = passes.shareOf(undefined);
  assert.notEqual(passes.shareOf(undefined), share);
  let begun = 0;
  const again = (): void => {
    begun += 1;
    if (begun < 5) passes.later(share, again);
  };
  passes.later(share, again);
  for (let pass = 1; pass <= 5; pass += 1) {
    await nextPass();
    assert.equal(begun, pass);
  }
});
