import assert from 'node:assert/strict';
import { test } from 'node:test';
import { blake3 } from '@napi-rs/blake-hash';
import fc from 'fast-check';
import { formatAddress } from '@ron/proto';
import { inPieces } from './body.ts';
import { addressOf, GROUP_BYTES, ObjectHasher } from './object-hasher.ts';

const content = Uint8Array.from({ length: 12 * GROUP_BYTES }, (_, at) => (at * 31 + (at >> 9)) & 255);

test('the address is BLAKE3 and does not depend on how the bytes were split', () => {
  const size = fc.oneof(
    fc.nat(content.length),
    fc.tuple(fc.nat(12), fc.integer({ min: -1, max: 1 })).map(([groups, by]) => groups * GROUP_BYTES + by),
  );
  fc.assert(
    fc.property(size, fc.array(fc.integer({ min: 1, max: 200_000 }), { minLength: 1 }), (wanted, cuts) => {
      const bytes = content.subarray(0, Math.max(0, Math.min(content.length, wanted)));
      const hasher = new ObjectHasher();
      for (let at = 0, cut = 0; at < bytes.length; cut++) {
        const length = cuts[cut % cuts.length]!;
        hasher.update(bytes.subarray(at, at + length));
        at += length;
      }
      assert.equal(hasher.size, bytes.length);
      assert.equal(hasher.finish(), formatAddress(blake3(bytes)));
    }),
    { numRuns: 60 },
  );
  assert.equal(addressOf(content), formatAddress(blake3(content)));
});

test('pieces have the requested length, except the last, and each stays valid while the next is read', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(fc.uint8Array({ maxLength: 40 }), { maxLength: 20 }),
      fc.integer({ min: 1, max: 33 }),
      async (chunks, piece_bytes) => {
        const whole = Buffer.concat(chunks);
        const lengths: number[] = [];
        let before: { bytes: Uint8Array; copy: Buffer } | undefined;
        const out: Buffer[] = [];
        for await (const piece of inPieces(ReadableStream.from(chunks), piece_bytes)) {
          if (before !== undefined) assert.deepEqual(Buffer.from(before.bytes), before.copy);
          before = { bytes: piece, copy: Buffer.from(piece) };
          out.push(before.copy);
          lengths.push(piece.length);
        }
        assert.deepEqual(Buffer.concat(out), whole);
        assert.ok(lengths.slice(0, -1).every((length) => length === piece_bytes));
      },
    ),
  );
});
