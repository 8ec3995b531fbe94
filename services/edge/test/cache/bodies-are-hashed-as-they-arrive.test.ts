/** The body of a fill has the address of its bytes, however it arrives, and takes bounded memory. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { blake3 } from '@napi-rs/blake-hash';
import { formatAddress } from '@ron/proto';
import { tempDirFor } from '@ron/testkit';
import fc from 'fast-check';
import { bodyOf, bytesOf, KIB, MIB, signal, startCache, type TestCache, write } from './support.ts';

const SIZES = [0, 1, 16 * KIB, 16 * KIB + 1, 64 * KIB, 64 * KIB + 1, 128 * KIB, 300 * KIB];

async function check({ cache }: TestCache): Promise<void> {
  const pieces = fc.array(fc.integer({ min: 1, max: 100_000 }), { minLength: 1, maxLength: 6 });
  const given = fc.record({
    size: fc.constantFrom(...SIZES),
    pieces,
    expected: fc.option(fc.nat(400_000), { nil: undefined }),
  });
  await fc.assert(
    fc.asyncProperty(given, async ({ size, pieces: lengths, expected }) => {
      const bytes = bodyOf(Math.max(size, 4), size).subarray(0, size);
      const writer = cache.writer(10 * MIB, expected);
      for (let at = 0, turn = 0; at < size; turn++) {
        const piece = Buffer.from(bytes.subarray(at, (at += lengths[turn % lengths.length]!)));
        await writer.write(piece, signal);
        // The sender may reuse its buffer.
        piece.fill(0);
      }
      const body = await writer.finish('image/png', signal);
      assert.equal(body.address, formatAddress(blake3(bytes)));
      assert.deepEqual({ size: body.size, bytes: await bytesOf(body.source) }, { size, bytes });
      assert.equal(body.source.etag, `"${body.address}"`);
      body.discard();
    }),
    { numRuns: 60 },
  );
}

test('with a disk', async (t) => {
  await using opened = await startCache({ dir: tempDirFor(t) });
  await check(opened);
});

test('in amnesia', async () => {
  await using opened = await startCache();
  await check(opened);
});

test('a body above its limit is refused, small or large', async (t) => {
  await using opened = await startCache({ dir: tempDirFor(t) });
  for (const bytes_max of [1000, 200 * KIB]) {
    await write(opened.cache, bodyOf(bytes_max, 1), bytes_max);
    await assert.rejects(write(opened.cache, bodyOf(bytes_max + 1, 1), bytes_max), { code: 'payload_too_large' });
  }
});

test('a large body on disk takes less than 1 MiB of memory', async (t) => {
  await using opened = await startCache({ dir: tempDirFor(t) });
  const writer = opened.cache.writer(10 * MIB);
  const piece = bodyOf(256 * KIB, 1);
  for (let at = 0; at < 4; at++) await writer.write(piece, signal);
  const before_bytes = process.memoryUsage().arrayBuffers;
  let most_bytes = 0;
  for (let at = 0; at < 32; at++) {
    piece.writeUInt32LE(at);
    await writer.write(piece, signal);
    most_bytes = Math.max(most_bytes, process.memoryUsage().arrayBuffers - before_bytes);
  }
  const body = await writer.finish('image/png', signal);
  assert.ok(body.isOnDisk && body.source.ram === undefined);
  assert.ok(most_bytes < MIB, `${most_bytes} bytes`);
});

test('memory for bodies that are not kept is given back', async () => {
  await using opened = await startCache({ flags: [`--amnesia.bytes_max=${2 * MIB}`] });
  const { cache } = opened;
  for (let at = 0; at < 20; at++) (await write(cache, bodyOf(300 * KIB, at))).discard();
  const held = await write(cache, bodyOf(300 * KIB, 1));
  await assert.rejects(write(cache, bodyOf(300 * KIB, 2)), { code: 'busy' });
  held.discard();
  await write(cache, bodyOf(300 * KIB, 2));
});
