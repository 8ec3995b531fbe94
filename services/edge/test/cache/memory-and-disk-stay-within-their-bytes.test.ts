/** A stream of ten times the size of the cache stays within both bounds, and does not evict assets in use. */
import assert from 'node:assert/strict';
import { readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { eventually, tempDirFor } from '@ron/testkit';
import { bodyOf, fill, forgetRam, keyOf, KIB, MIB, read, signal, startCache } from './support.ts';

const DISK_BYTES = 4 * MIB;
const RAM_BYTES = MIB;

/** The bytes of all files below a directory. */
function filesBytes(dir: string): number {
  return readdirSync(dir, { recursive: true, withFileTypes: true })
    .filter((each) => each.isFile())
    .reduce(
      (sum, { parentPath, name }) => sum + (statSync(join(parentPath, name), { throwIfNoEntry: false })?.size ?? 0),
      0,
    );
}

test('memory and disk', async (t) => {
  const dir = tempDirFor(t);
  const flags = [`--cache.disk_bytes=${DISK_BYTES}`, `--cache.ram_bytes=${RAM_BYTES}`];
  await using opened = await startCache({ dir, flags });
  const { cache } = opened;
  const hot = Array.from({ length: 8 }, (_, at) => keyOf(`hot/${at}`));
  for (const [seed, key] of hot.entries()) {
    await fill(cache, key, bodyOf(10 * KIB, seed));
    await read(cache, key);
  }
  let [streamed, most, seed] = [0, 0, 100];
  while (streamed < 10 * DISK_BYTES) {
    const sizes = [12, 12, 12, 60, 100, 12, 12, 30].map((kib) => kib * KIB);
    const fills = sizes.map((size) => {
      seed += 1;
      const [mine, key] = [seed, keyOf(`scan/${seed}`)];
      return fill(cache, key, bodyOf(size, mine));
    });
    await Promise.all(fills);
    streamed += sizes.reduce((sum, size) => sum + size, 0);
    assert.ok(cache.ram.bytes <= RAM_BYTES, `${cache.ram.bytes} bytes of memory`);
    assert.ok(cache.disk_bytes <= DISK_BYTES, `${cache.disk_bytes} bytes of disk`);
    for (const key of hot) assert.equal((await read(cache, key))?.tier, 'ram', `${key} was evicted by a scan`);
    if (seed % 10 !== 0) continue;
    most = Math.max(most, filesBytes(join(dir, 'cache')));
    // The stream is faster than any origin; eviction gets its turns.
    await eventually('there is room for further assets', () => cache.disk_bytes < 0.95 * DISK_BYTES);
  }
  assert.ok(most <= DISK_BYTES, `the directory had ${most} bytes`);
  t.diagnostic(`${streamed} bytes streamed; at most ${most} bytes in the directory`);
  forgetRam(cache);
  for (const [at, key] of hot.entries()) {
    assert.deepEqual(
      await read(cache, key),
      { bytes: bodyOf(10 * KIB, at), tier: 'cas' },
      'a scan evicted it from disk',
    );
  }
});

test('in amnesia one bound covers assets and bodies', async () => {
  const bytes_max = 2 * MIB;
  await using opened = await startCache({ flags: [`--amnesia.bytes_max=${bytes_max}`] });
  const { cache } = opened;
  for (let seed = 0; seed < 400; seed++) {
    await fill(cache, keyOf(seed), bodyOf(50 * KIB, seed));
    assert.ok(cache.ram.bytes <= 0.75 * bytes_max);
  }
  // Bodies that are being fetched have the rest.
  const writers = Array.from({ length: 8 }, () => cache.writer(10 * MIB));
  const written = await Promise.allSettled(writers.map((writer) => writer.write(bodyOf(200 * KIB, 1), signal)));
  const refused = written.flatMap((each) =>
    each.status === 'rejected' ? [(each.reason as { code: string }).code] : [],
  );
  assert.ok(refused.length >= 5 && refused.every((code) => code === 'busy'), String(refused));
  for (const writer of writers) writer.abort();
  assert.ok(await fill(cache, keyOf('next'), bodyOf(120 * KIB, 9)), 'aborted bodies give their memory back');
});
