import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Cell, Mpsc, NEVER } from '@ron/kernel';
import { VirtualSched } from '@ron/kernel/testing';
import type { AuditEvent } from '../audit/audit-event.ts';
import type { InteropEvent } from '../events.ts';
import { DeliveryRecorder, UNKNOWN_PROVIDER } from './delivery-recorder.ts';
import { RecentDeliveries } from './recent-deliveries.ts';
import { RefusalSums } from './refusal-sums.ts';

function make(capacity = 64) {
  const recent = new RecentDeliveries();
  const audit = new Mpsc<AuditEvent>('audit', capacity);
  const published: InteropEvent[] = [];
  const sums = new RefusalSums(new Cell('counters', 3, new Map()));
  const events = { publish: (event: InteropEvent) => (published.push(event), 1) };
  const recorder = new DeliveryRecorder({ recent, sums, audit, events: events });
  return { recent, audit, published, recorder };
}
const refused = { provider: 'shop', outcome: 'refused', reason: 'BAD_ORIGIN', corr_id: 'c', ip: '192.0.2.1' } as const;
const totalsOf = ({ totals }: DeliveryRecorder): unknown[] =>
  [...totals.values()].map(({ provider, outcome, value }) => [provider, outcome, value]);

test('a delivery is in the counters, the list, the events and the audit; only the audit has the address', async () => {
  const { recent, audit, published, recorder } = make();
  recorder.record({ provider: 'shop', outcome: 'accepted', corr_id: 'c', bytes: 7, receipt: '01J', ip: '192.0.2.1' });
  const [entry] = recent.page(0, 9).deliveries;
  const { seq, at_ms, ...rest } = entry!;
  assert.ok(seq > 0 && at_ms > 0);
  assert.deepEqual(rest, { provider: 'shop', outcome: 'accepted', corr_id: 'c', bytes: 7, receipt: '01J' });
  assert.deepEqual(published, [{ kind: 'delivery', delivery: entry }]);
  assert.deepEqual(await audit.recvMany(9, NEVER), [{ kind: 'delivery', ...entry, ip: '192.0.2.1' }]);
  assert.deepEqual(totalsOf(recorder), [['shop', 'accepted', 1]]);
});

test('a flood of refusals is counted in full, recorded ten times and summed once', async () => {
  const clock = new VirtualSched();
  await clock.during(() => {
    const { recent, audit, recorder } = make();
    for (let at = 0; at < 50; at += 1) recorder.record(refused);
    recorder.record({ ...refused, outcome: 'accepted' });
    assert.deepEqual(totalsOf(recorder), [
      ['shop', 'refused', 50],
      ['shop', 'accepted', 1],
    ]);
    assert.equal(audit.depth, 11);
    recorder.recordSums();
    assert.equal(audit.depth, 11, 'the second has not ended');
    clock.advanceSync(1000);
    recorder.recordSums();
    recorder.recordSums();
    const sum = recent.page(0, 99).deliveries.at(-1)!;
    assert.deepEqual([sum.provider, sum.reason, sum.outcome, sum.count], ['shop', 'BAD_ORIGIN', 'refused', 40]);
    assert.equal(audit.depth, 12);
    assert.equal(totalsOf(recorder).length, 2, 'a sum does not count again');
  });
});

test('at a stop, the sums of the last second are recorded', () => {
  const { recent, recorder } = make();
  for (let at = 0; at < 12; at += 1) recorder.record(refused);
  recorder.recordLastSums();
  assert.equal(recent.page(0, 99).deliveries.at(-1)!.count, 2);
});

test('accepted deliveries are never summed', () => {
  const { recent, recorder } = make();
  for (let at = 0; at < 30; at += 1) recorder.record({ provider: 'shop', outcome: 'duplicate', corr_id: 'c' });
  assert.equal(recent.page(0, 99).deliveries.length, 30);
});

test('[interop I-9] a full audit channel loses its oldest event, counted, and never delays a request', async () => {
  const { audit, recorder } = make(2);
  for (const corr_id of ['a', 'b', 'c', 'd']) recorder.record({ provider: 'shop', outcome: 'accepted', corr_id });
  assert.equal(audit.dropped_total, 2);
  const kept = await audit.recvMany(9, NEVER);
  assert.deepEqual(
    kept.map(({ corr_id }) => corr_id),
    ['c', 'd'],
  );
});

test('the counters of a removed provider go, and those of others stay', () => {
  const { recorder } = make();
  for (const provider of ['shop', 'shop2', UNKNOWN_PROVIDER]) {
    recorder.record({ ...refused, provider });
    recorder.record({ ...refused, provider, outcome: 'accepted' });
  }
  recorder.forget('shop');
  assert.deepEqual(totalsOf(recorder), [
    ['shop2', 'refused', 1],
    ['shop2', 'accepted', 1],
    ['-', 'refused', 1],
    ['-', 'accepted', 1],
  ]);
});

test('a delivery of a provider that was removed meanwhile is listed by its name and counted as -', () => {
  const { recent, recorder } = make();
  recorder.record({ ...refused, outcome: 'accepted' }, UNKNOWN_PROVIDER);
  assert.equal(recent.page(0, 9).deliveries[0]!.provider, 'shop');
  assert.deepEqual(totalsOf(recorder), [['-', 'accepted', 1]]);
});
