/** The memory and the start of a spool with 100 k deliveries. Memory is read after a collection; time is only reported. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { NEVER } from '@ron/kernel';
import { eventually, tempDirFor } from '@ron/testkit';
import { deliveryOf, keyOf, openSpool, ulidOf } from './testing/make.ts';

const DELIVERIES = 100_000;
const BYTES_MAX = 128;
/** The hashes, the log and its buffers. */
const FIXED_BYTES = 12 * 1024 * 1024;

setFlagsFromString('--expose_gc');
const collect = runInNewContext('gc') as () => void;

function usedBytes(): number {
  collect();
  collect();
  const { arrayBuffers, heapUsed } = process.memoryUsage();
  return arrayBuffers + heapUsed;
}

test('[interop I-3] 100 k deliveries take at most 128 bytes of memory each, and give them back', async (t) => {
  const init = { dir: tempDirFor(t), bytes_max: 1024 * 1024 * 1024, deliveries_max: DELIVERIES, page_bits: 12 };
  const before = usedBytes();
  let used = 0;
  // The buffers of the last batch are released some turns later.
  const fallsTo = (bytes_max: number): Promise<void> =>
    eventually(`at most ${bytes_max} bytes of memory`, () => (used = usedBytes() - before) <= bytes_max).catch(
      (error) => assert.fail(`${String(error)}; ${used} bytes are used`),
    );
  const { spool } = await openSpool(init);
  for (let n = 1; n <= DELIVERIES;) {
    const end = Math.min(DELIVERIES, n + 499);
    const batch: Promise<unknown>[] = [];
    for (; n <= end; n++) batch.push(spool.append(deliveryOf(n, n % 2 === 0 ? 'a' : 'b', 256), NEVER));
    await Promise.all(batch);
  }
  assert.equal(spool.count, DELIVERIES);
  assert.equal(await spool.append(deliveryOf(DELIVERIES + 1, 'c'), NEVER), 'full');
  await fallsTo(BYTES_MAX * DELIVERIES + FIXED_BYTES);
  t.diagnostic(`${(used / DELIVERIES).toFixed(1)} bytes of memory for each delivery, ${spool.bytes} bytes on disk`);
  await spool.close();

  const began_ms = performance.now();
  const { spool: again } = await openSpool(init);
  t.diagnostic(`opened in ${Math.round(performance.now() - began_ms)} ms`);
  assert.equal(again.count, DELIVERIES);
  assert.equal(again.idOf(keyOf(77_777)), ulidOf(77_777));
  while (again.count > 0) {
    again.settle(again.take({ messages: 128, bytes: 1024 * 1024 }, () => Infinity));
    await again.maintain(NEVER);
  }
  await again.removeSettled(NEVER);
  assert.equal(again.bytes, 0);
  await fallsTo(FIXED_BYTES);
  await again.close();
});
