import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Worker } from 'node:worker_threads';
import { isRonError } from '@ron/kernel';
import { gateOf, gone, ModuleGate } from './module-gate.ts';

/** `[calls inside, most of them at once, times that somebody was met where nobody may be]` */
const seen = (): Int32Array<SharedArrayBuffer> => new Int32Array(new SharedArrayBuffer(3 * 4));

/** A thread that goes in and out, and every seventh time wants to be alone. */
function visitor(gate: SharedArrayBuffer, counts: Int32Array<SharedArrayBuffer>, rounds: number): Promise<number> {
  const source = `
    import { workerData } from 'node:worker_threads';
    import { ModuleGate } from ${JSON.stringify(import.meta.resolve('./module-gate.ts'))};
    const { gate: shared, counts, rounds } = workerData;
    const gate = new ModuleGate(shared);
    for (let round = 0; round < rounds; round++) {
      if (round % 7 === 6) gate.alone(10_000, () => { if (Atomics.load(counts, 0) !== 0) Atomics.add(counts, 2, 1); });
      else gate.among(() => {
        const inside = Atomics.add(counts, 0, 1) + 1;
        if (inside > Atomics.load(counts, 1)) Atomics.store(counts, 1, inside);
        Atomics.wait(counts, 2, 0, 0.1);
        Atomics.sub(counts, 0, 1);
      });
    }`;
  const worker = new Worker(new URL(`data:text/javascript,${encodeURIComponent(source)}`), {
    workerData: { gate, counts, rounds },
  });
  return new Promise((resolve, reject) => {
    worker.once('error', reject);
    worker.once('exit', resolve);
  });
}

test('who is alone meets nobody inside, and all get their turn', async () => {
  const counts = seen();
  const gate = gateOf('visited');
  const ended = await Promise.all(Array.from({ length: 4 }, () => visitor(gate, counts, 500)));
  assert.deepEqual(ended, [0, 0, 0, 0]);
  assert.equal(Atomics.load(counts, 0), 0);
  assert.equal(Atomics.load(counts, 2), 0, 'somebody was inside');
});

test('nobody is alone while another is inside; a thread that is gone is inside no more', () => {
  const shared = gateOf('hanging');
  const words = new Int32Array(shared);
  const gate = new ModuleGate(shared);
  // As a thread that hangs in a call leaves it: its number, and that it is inside.
  words.set([77, 1], 5);
  assert.equal(
    gate.alone(1, () => assert.fail('the other is still inside')),
    false,
  );
  gone(shared, 77);
  let ran = false;
  assert.ok(gate.alone(1, () => void (ran = true)));
  assert.ok(ran);
});

test('a thread that dies while it is alone does not keep the others out', () => {
  const shared = gateOf('dead holder');
  const gate = new ModuleGate(shared);
  new Int32Array(shared)[0] = 78;
  assert.throws(
    () => gate.among(() => 'in'),
    (error) => isRonError(error, 'not_ready'),
  );
  gone(shared, 78);
  assert.equal(
    gate.among(() => 'in'),
    'in',
  );
});

test('too many threads are refused', () => {
  const shared = gateOf('crowd');
  const words = new Int32Array(shared);
  for (let at = 3; at < words.length; at += 2) words[at] = at;
  assert.throws(
    () => new ModuleGate(shared),
    (error) => isRonError(error, 'not_ready'),
  );
});
