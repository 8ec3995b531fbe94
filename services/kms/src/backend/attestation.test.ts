/** [kms I-2] The attestation cache has one writer: readers see the last attestation that was complete in time. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Attestation } from '@ron/custody';
import { Deadline, sleep } from '@ron/kernel';
import { AttestationRefresher } from './attestation.ts';

const NEVER = new AbortController().signal;
const attestation = (issued_ms: number): Attestation => ({ attestation_class: 'test', evidence: {}, issued_ms });

/** A backend whose answers the test gives. */
function setUp(deadline_ms: number): { refresher: AttestationRefresher; calls: PromiseWithResolvers<Attestation>[] } {
  const calls: PromiseWithResolvers<Attestation>[] = [];
  const attest = (): Promise<Attestation> => {
    const call = Promise.withResolvers<Attestation>();
    calls.push(call);
    return call.promise;
  };
  const refresher = new AttestationRefresher({
    backend: { attest },
    interval_ms: () => 1,
    deadline: () => Deadline.after('attest', deadline_ms),
    isStopping: () => false,
  });
  return { refresher, calls };
}

test('an attestation replaces the one before it as a whole; a failure keeps it and is reported', async () => {
  const { refresher, calls } = setUp(10_000);
  const first = refresher.refresh();
  assert.equal(refresher.current, undefined);
  calls[0]!.resolve(attestation(1));
  await first;
  assert.deepEqual(refresher.current, attestation(1));
  const second = refresher.refresh();
  calls[1]!.reject(new Error('unplugged'));
  await second;
  assert.deepEqual(refresher.current, attestation(1));
  assert.equal(refresher.problem, 'the backend returned no attestation');
  const third = refresher.refresh();
  calls[2]!.resolve(attestation(3));
  await third;
  assert.deepEqual([refresher.current, refresher.problem], [attestation(3), undefined]);
});

test('[kms I-4] an answer that comes after its deadline is not written into the cache', async () => {
  const { refresher, calls } = setUp(20);
  await refresher.refresh();
  assert.match(refresher.problem!, /attest did not end within 20 ms/);
  calls[0]!.resolve(attestation(1));
  await sleep(1, NEVER, 'late answer');
  assert.equal(refresher.current, undefined);
});

test('[kms I-5] one renewal runs at a time, and the task ends when it is stopped', async () => {
  const seen = { running: 0, most: 0, ended: 0 };
  const attest = async (): Promise<Attestation> => {
    seen.most = Math.max(seen.most, ++seen.running);
    await sleep(5, NEVER, 'attest');
    seen.running -= 1;
    return attestation(++seen.ended);
  };
  const refresher = new AttestationRefresher({
    backend: { attest },
    interval_ms: () => 1,
    deadline: () => Deadline.after('attest', 10_000),
    isStopping: () => false,
  });
  const stopping = new AbortController();
  const task = refresher.run(stopping.signal);
  while (seen.ended < 3) await sleep(1, NEVER, 'third renewal');
  stopping.abort(new Error('stopped'));
  await assert.rejects(task, /stopped/);
  assert.equal(seen.most, 1);
  assert.equal(refresher.current?.issued_ms, seen.ended);
});
