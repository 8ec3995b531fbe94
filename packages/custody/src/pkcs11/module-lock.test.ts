import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Worker } from 'node:worker_threads';
import { isRonError } from '@ron/kernel';
import { lockOf, threadExited, ModuleLock } from './module-lock.ts';

/** `[calls inside, their maximum, violations of exclusivity]` */
const seen = (): Int32Array<SharedArrayBuffer> => new Int32Array(new SharedArrayBuffer(3 * 4));

/** A thread that makes shared calls and, every seventh time, an exclusive one. */
function visitor(lock: SharedArrayBuffer, counts: Int32Array<SharedArrayBuffer>, rounds: number): Promise<number> {
  const source = `
    import { workerData } from 'node:worker_threads';
    import { ModuleLock } from ${JSON.stringify(import.meta.resolve('./module-lock.ts'))};
    const { lock: shared, counts, rounds } = workerData;
    const lock = new ModuleLock(shared);
    for (let round = 0; round < rounds; round++) {
      if (round % 7 === 6) lock.runExclusive(10_000, () => { if (Atomics.load(counts, 0) !== 0) Atomics.add(counts, 2, 1); });
      else lock.runShared(() => {
        const inside = Atomics.add(counts, 0, 1) + 1;
        if (inside > Atomics.load(counts, 1)) Atomics.store(counts, 1, inside);
        Atomics.wait(counts, 2, 0, 0.1);
        Atomics.sub(counts, 0, 1);
      });
    }`;
  const worker = new Worker(new URL(`data:text/javascript,${encodeURIComponent(source)}`), {
    workerData: { lock, counts, rounds },
  });
  return new Promise((resolve, reject) => {
    worker.once('error', reject);
    worker.once('exit', resolve);
  });
}

test('an exclusive call overlaps no other call, and every thread gets its turn', async () => {
  const counts = seen();
  const lock = lockOf('visited');
  const ended = await Promise.all(Array.from({ length: 4 }, () => visitor(lock, counts, 500)));
  assert.deepEqual(ended, [0, 0, 0, 0]);
  assert.equal(Atomics.load(counts, 0), 0);
  assert.equal(Atomics.load(counts, 2), 0, 'an exclusive call overlapped a shared one');
});

test('no exclusive call runs while another thread is inside; a thread that exited is no longer inside', () => {
  const shared = lockOf('hanging');
  const words = new Int32Array(shared);
  const lock = new ModuleLock(shared);
  // The state of a thread that hangs in a call: its id and its inside flag.
  words.set([77, 1], 5);
  assert.equal(
    lock.runExclusive(1, () => assert.fail('the other thread is still inside')),
    false,
  );
  threadExited(shared, 77);
  let ran = false;
  assert.ok(lock.runExclusive(1, () => void (ran = true)));
  assert.ok(ran);
});

test('a thread that dies in an exclusive call does not block the others', () => {
  const shared = lockOf('dead holder');
  const lock = new ModuleLock(shared);
  new Int32Array(shared)[0] = 78;
  assert.throws(
    () => lock.runShared(() => 'in'),
    (error) => isRonError(error, 'not_ready'),
  );
  threadExited(shared, 78);
  assert.equal(
    lock.runShared(() => 'in'),
    'in',
  );
});

test('too many threads are refused', () => {
  const shared = lockOf('crowd');
  const words = new Int32Array(shared);
  for (let at = 3; at < words.length; at += 2) words[at] = at;
  assert.throws(
    () => new ModuleLock(shared),
    (error) => isRonError(error, 'not_ready'),
  );
});
