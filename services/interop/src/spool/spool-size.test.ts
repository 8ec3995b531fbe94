/** The memory and the start of a spool with 100 k deliveries. Memory is read after a collection; time is only reported. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { NEVER } from '@ron/kernel';
import { tempDirFor } from '@ron/testkit';
import { deliveryOf, keyOf, openSpool, ulidOf } from './testing/make.ts';

const DELIVERIES = 100_000;
const BYTES_MAX = 128;
/** The hashes, the log and its buffers. */
const FIXED_BYTES = 12 * 1024 * 1024;

setFlagsFromString('--expose_gc');
const collect = runInNewContext('gc') as () => void;

async function usedBytes(): Promise<number> {
  // The buffers of the last batch are released in a later turn.
  for (let turn = 0; turn < 5; turn++) await new Promise((resolve) => setImmediate(resolve));
  collect();
  collect();
  const { arrayBuffers, heapUsed } = process.memoryUsage();
  return arrayBuffers + heapUsed;
}

test('[interop I-3] 100 k deliveries take at most 128 bytes of memory each, and give them back', async (t) => {
  const init = { dir: tempDirFor(t), bytes_max: 1024 * 1024 * 1024, deliveries_max: DELIVERIES, page_bits: 12 };
  const before = await usedBytes();
  const { spool } = await openSpool(init);
  for (let n = 1; n <= DELIVERIES;) {
    const end = Math.min(DELIVERIES, n + 499);
    const batch: Promise<unknown>[] = [];
    for (; n <= end; n++) batch.push(spool.append(deliveryOf(n, n % 2 === 0 ? 'a' : 'b', 256), NEVER));
    await Promise.all(batch);
  }
  assert.equal(spool.count, DELIVERIES);
  assert.equal(await spool.append(deliveryOf(DELIVERIES + 1, 'c'), NEVER), 'full');
  const used = (await usedBytes()) - before;
  t.diagnostic(`${(used / DELIVERIES).toFixed(1)} bytes of memory for each delivery, ${spool.bytes} bytes on disk`);
  assert.ok(used <= BYTES_MAX * DELIVERIES + FIXED_BYTES, `${used} bytes`);
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
  const left = (await usedBytes()) - before;
  assert.ok(left <= FIXED_BYTES, `${left} bytes are left`);
  await again.close();
});
