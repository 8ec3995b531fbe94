/** A flipped bit on disk makes an asset a miss; of a large one no wrong byte is read, and the next look-up is a miss. */
import assert from 'node:assert/strict';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { eventually, tempDirFor } from '@ron/testkit';
import { bodyOf, bytesOf, fill, forgetRam, keyOf, KIB, read, signal, startCache } from './support.ts';

/** Flips a bit of the last chunk of the body, wherever it lies on disk. */
function flipIn(dir: string, body: Buffer): void {
  const tail = body.subarray(-200);
  for (const name of readdirSync(join(dir, 'cache', 'segments'))) {
    const path = join(dir, 'cache', 'segments', name);
    const bytes = readFileSync(path);
    const at = bytes.indexOf(tail);
    if (at < 0) continue;
    bytes[at + 100]! ^= 4;
    writeFileSync(path, bytes);
    return;
  }
  assert.fail('the body is not on disk');
}

for (const [name, size] of [
  ['of one record', 20 * KIB],
  ['of several chunks', 300 * KIB],
  ['larger than is read at once', 2000 * KIB],
] as const) {
  test(`an asset ${name}`, async (t) => {
    const dir = tempDirFor(t);
    await using opened = await startCache({ dir });
    const { cache } = opened;
    const body = bodyOf(size, 1);
    await fill(cache, keyOf('a'), body);
    await fill(cache, keyOf('b'), bodyOf(size, 2));
    forgetRam(cache);
    assert.deepEqual((await read(cache, keyOf('a')))?.bytes, body);
    forgetRam(cache);
    flipIn(dir, body);
    const found = await cache.find(keyOf('a'), signal);
    if (found !== undefined) {
      assert.ok(size > 1024 * KIB, 'a small asset is verified before it is given');
      const parts: Uint8Array[] = [];
      await assert.rejects(
        async () => {
          for await (const batch of found.source.read(0, size, signal)) parts.push(Buffer.concat(batch));
        },
        { code: 'integrity' },
      );
      const given = Buffer.concat(parts);
      assert.deepEqual(given, body.subarray(0, given.length), 'no wrong byte');
    }
    assert.equal(await cache.find(keyOf('a'), signal), undefined, 'a miss');
    await eventually('a new fill is stored', async () => {
      await fill(cache, keyOf('a'), body);
      forgetRam(cache);
      return (await cache.find(keyOf('a'), signal))?.tier === 'cas';
    });
    const again = await cache.find(keyOf('a'), signal);
    assert.deepEqual(await bytesOf(again!.source), body);
    assert.deepEqual((await read(cache, keyOf('b')))?.bytes, bodyOf(size, 2), 'other assets are intact');
  });
}
