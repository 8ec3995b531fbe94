/** Assets in memory are charged for the memory that they take. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { bodyOf, fill, keyOf, MIB, startCache } from './support.ts';

setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc') as () => void;

function usedBytes(): number {
  collect();
  collect();
  const { heapUsed, arrayBuffers } = process.memoryUsage();
  return heapUsed + arrayBuffers;
}

for (const [count, size] of [
  [10_000, 400],
  [5000, 4000],
  [500, 40_000],
] as const) {
  test(`${count} assets of ${size} bytes`, async (t) => {
    await using opened = await startCache({ flags: [`--amnesia.bytes_max=${256 * MIB}`] });
    const { cache } = opened;
    const empty_bytes = usedBytes();
    for (let at = 0; at < count; at++) await fill(cache, keyOf(`layers/streets/${at}`), bodyOf(size, at));
    const real_bytes = usedBytes() - empty_bytes;
    const ratio = cache.ram.bytes / real_bytes;
    t.diagnostic(`charged / real: ${ratio.toFixed(2)}, ${(real_bytes / count).toFixed(0)} bytes for each`);
    assert.ok(ratio > 0.9 && ratio < 2, `charged ${cache.ram.bytes}, real ${real_bytes}`);
  });
}
