/** After kill -9 in the middle of fills and evictions, every kept asset is found, intact, and the cache goes on. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { test } from 'node:test';
import { tempDirFor } from '@ron/testkit';
import { bodyOf, fill, forgetRam, keyOf, KIB, MIB, read, startCache } from './support.ts';

const PROGRAM = new URL('fill-until-killed.ts', import.meta.url).pathname;

/** Runs the program until it has kept so many assets; their numbers. */
async function killAfter(dir: string, disk_bytes: number, count: number): Promise<number[]> {
  const child = spawn(process.execPath, [PROGRAM, dir, String(disk_bytes)], { stdio: ['ignore', 'pipe', 'inherit'] });
  const kept: number[] = [];
  for await (const line of createInterface(child.stdout)) {
    kept.push(Number(line));
    if (kept.length === count) child.kill('SIGKILL');
  }
  if (child.exitCode === null && child.signalCode === null) await once(child, 'exit');
  assert.equal(child.signalCode, 'SIGKILL');
  return kept;
}

const sizeOf = (seed: number): number => (seed % 10 === 0 ? 100 * KIB : 5 * KIB);

for (const [name, disk_bytes, count, isComplete] of [
  ['during fills', 64 * MIB, 120, true],
  ['during evictions', 2 * MIB, 400, false],
] as const) {
  test(name, async (t) => {
    const dir = tempDirFor(t);
    const kept = await killAfter(dir, disk_bytes, count);
    await using opened = await startCache({ dir, flags: [`--cache.disk_bytes=${disk_bytes}`] });
    const { cache } = opened;
    let found = 0;
    for (const seed of kept) {
      const asset = await read(cache, keyOf(seed));
      if (asset === undefined) continue;
      found += 1;
      assert.deepEqual(asset, { bytes: bodyOf(sizeOf(seed), seed), tier: 'cas' });
    }
    if (isComplete) assert.equal(found, kept.length, 'an asset with a note was lost');
    else assert.ok(found > 20 && found < kept.length, `${found} of ${kept.length} were found`);
    assert.ok(cache.disk_bytes <= disk_bytes);
    forgetRam(cache);
    assert.ok(await fill(cache, keyOf('new'), bodyOf(10 * KIB, 1)), 'new fills are kept');
    assert.equal(cache.problem, undefined);
    t.diagnostic(`${found} of ${kept.length} assets were found`);
  });
}
