/** The memory and the start of a spool with 100 k deliveries. Memory is read after a collection; time is only reported. */
import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { NEVER } from '@ron/kernel';
import { eventually, tempDirFor } from '@ron/testkit';
import { deliveryOf, keyOf, openSpool, ulidOf } from './testing/make.ts';

const DELIVERIES = 100_000;
const BYTES_MAX = 128;
/** The hashes, the log and its buffers. */
const FIXED_BYTES = 4 * 1024 * 1024;

setFlagsFromString('--expose_gc');
const collect = runInNewContext('gc') as () => void;

function usedBytes(): number {
  collect();
  collect();
  const { arrayBuffers, heapUsed } = process.memoryUsage();
  return arrayBuffers + heapUsed;
}

const init = { bytes_max: 1024 * 1024 * 1024, deliveries_max: DELIVERIES, page_bits: 12 };

/** Resolves with the bytes used since `before` once they are at most `bytes_max`: buffers are released some turns later. */
async function fallTo(bytes_max: number, before: number): Promise<number> {
  let used = 0;
  await eventually(`at most ${bytes_max} bytes of memory`, () => (used = usedBytes() - before) <= bytes_max).catch(
    (error) => assert.fail(`${String(error)}; ${used} bytes are used`),
  );
  return used;
}

// A function for each spool: the frame of the test would keep a closed one in memory.
async function fill(t: TestContext, dir: string, before: number): Promise<void> {
  const { spool } = await openSpool({ ...init, dir });
  for (let n = 1; n <= DELIVERIES;) {
    const end = Math.min(DELIVERIES, n + 499);
    const batch: Promise<unknown>[] = [];
    for (; n <= end; n++) batch.push(spool.append(deliveryOf(n, n % 2 === 0 ? 'a' : 'b', 256), NEVER));
    await Promise.all(batch);
  }
  assert.equal(spool.count, DELIVERIES);
  assert.equal(await spool.append(deliveryOf(DELIVERIES + 1, 'c'), NEVER), 'full');
  const used = await fallTo(BYTES_MAX * DELIVERIES + FIXED_BYTES, before);
  t.diagnostic(`${(used / DELIVERIES).toFixed(1)} bytes of memory for each delivery, ${spool.bytes} bytes on disk`);
  await spool.close();
}

async function empty(t: TestContext, dir: string, before: number): Promise<void> {
  const began_ms = performance.now();
  const { spool } = await openSpool({ ...init, dir });
  t.diagnostic(`opened in ${Math.round(performance.now() - began_ms)} ms`);
  assert.equal(spool.count, DELIVERIES);
  assert.equal(spool.idOf(keyOf(77_777)), ulidOf(77_777));
  while (spool.count > 0) {
    spool.settle(spool.take({ messages: 128, bytes: 1024 * 1024 }, () => Infinity));
    await spool.maintain(NEVER);
  }
  await spool.removeSettled(NEVER);
  assert.equal(spool.bytes, 0);
  t.diagnostic(`${await fallTo(FIXED_BYTES, before)} bytes are left`);
  await spool.close();
}

test('[interop I-3] 100 k deliveries take at most 128 bytes of memory each, and give them back', async (t) => {
  const dir = tempDirFor(t);
  const before = usedBytes();
  await fill(t, dir, before);
  await empty(t, dir, before);
});
