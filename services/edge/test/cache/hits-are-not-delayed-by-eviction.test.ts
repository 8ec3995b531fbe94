/** Eviction and compaction never delay a hit. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { tempDirFor } from '@ron/testkit';
import { bodyOf, fill, keyOf, KIB, MIB, read, startCache, type TestCache } from './support.ts';

const HOT = 50;
const HITS = 2000;

/** The times of hits on disk, and in memory, in ms, ascending. */
async function measure({ cache }: TestCache): Promise<{ disk: number[]; ram: number[] }> {
  const [disk, ram]: [number[], number[]] = [[], []];
  for (let at = 0; at < HITS; at++) {
    const key = keyOf(`hot/${at % HOT}`);
    for (const times of [disk, ram]) {
      if (times === disk) cache.ram.delete(key);
      const begun_ms = performance.now();
      const found = await read(cache, key);
      times.push(performance.now() - begun_ms);
      assert.equal(found?.tier, times === disk ? 'cas' : 'ram');
    }
    // Other work gets its turns, as between two requests.
    await new Promise((resolve) => void setImmediate(resolve));
  }
  const ascending = (times: number[]): number[] => times.toSorted((a, b) => a - b);
  return { disk: ascending(disk), ram: ascending(ram) };
}

const p99 = (times: readonly number[]): number => times[Math.floor(times.length * 0.99)]!;

test('p99 of hits beside a stream that is evicted and compacted', async (t) => {
  const flags = [`--cache.disk_bytes=${16 * MIB}`, `--cache.ram_bytes=${4 * MIB}`];
  await using opened = await startCache({ dir: tempDirFor(t), flags });
  const { cache } = opened;
  for (let at = 0; at < HOT; at++) await fill(cache, keyOf(`hot/${at}`), bodyOf(10 * KIB, at));
  const quiet = await measure(opened);
  const ending = new AbortController();
  let filled = 0;
  const stream = async (first: number): Promise<void> => {
    for (let seed = first; !ending.signal.aborted; seed += 4) {
      await fill(cache, keyOf(`scan/${seed}`), bodyOf(12 * KIB, seed));
      filled += 1;
      await new Promise((resolve) => void setImmediate(resolve));
    }
  };
  const streams = [1000, 1001, 1002, 1003].map(stream);
  // The disk is full from now on, so that every fill evicts.
  while (cache.disk_bytes < 12 * MIB) await new Promise((resolve) => setTimeout(resolve, 5));
  const before = filled;
  const busy = await measure(opened);
  ending.abort();
  await Promise.all(streams);
  const describe = (times: readonly number[]): string =>
    `p50 ${times[times.length >> 1]!.toFixed(3)}, p99 ${p99(times).toFixed(3)} ms`;
  t.diagnostic(`${filled - before} fills during ${HITS} hits of each kind`);
  t.diagnostic(`disk: quiet ${describe(quiet.disk)}; busy ${describe(busy.disk)}`);
  t.diagnostic(`memory: quiet ${describe(quiet.ram)}; busy ${describe(busy.ram)}`);
  assert.ok(filled - before > 20, 'fills went on');
  assert.ok(p99(busy.disk) < Math.max(20, 3 * p99(quiet.disk)), `p99 on disk: ${p99(busy.disk)} ms`);
  assert.ok(p99(busy.ram) < Math.max(1, 3 * p99(quiet.ram)), `p99 in memory: ${p99(busy.ram)} ms`);
});
