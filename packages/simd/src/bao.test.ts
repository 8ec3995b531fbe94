import assert from 'node:assert/strict';
import { test } from 'node:test';
import { blake3 as nativeBlake3 } from '@napi-rs/blake-hash';
import fc from 'fast-check';
import { encodeSlice, sliceBytes, SliceError, verifySlice, type Subtree, type Tree } from './bao.ts';
import { parentValue, subtreeValue } from './blake3.ts';

const GROUP_BYTES = 4096;
const signal = new AbortController().signal;

const contentOf = (size: number): Uint8Array =>
  Uint8Array.from({ length: size }, (_, at) => (at * 31 + (at >> 7)) & 255);

function treeOf(bytes: Uint8Array): Tree {
  const group = (index: number): Uint8Array => bytes.subarray(index * GROUP_BYTES, (index + 1) * GROUP_BYTES);
  const value = (first: number, count: number): Uint8Array => {
    if (count === 1) return subtreeValue(group(first), first * GROUP_BYTES);
    const left = 2 ** (Math.ceil(Math.log2(count)) - 1);
    return parentValue(value(first, left), value(first + left, count - left), false);
  };
  return {
    size: bytes.length,
    group_bytes: GROUP_BYTES,
    value: (first, count) => Promise.resolve(value(first, count)),
    groups: (first, last) => inBatches(first, last, group),
  };
}

/** Three at a time, from memory that is reused when the next batch is requested. */
async function* inBatches(
  first: number,
  last: number,
  group: (index: number) => Uint8Array,
): AsyncGenerator<readonly Uint8Array[]> {
  for (let at = first; at <= last; at += 3) {
    const batch = Array.from({ length: Math.min(3, last - at + 1) }, (_, index) => Uint8Array.from(group(at + index)));
    yield batch;
    for (const bytes of batch) bytes.fill(0xaa);
  }
}

async function slice(bytes: Uint8Array, offset: number, length: number): Promise<Buffer> {
  const pieces: Uint8Array[] = [];
  for await (const batch of encodeSlice(treeOf(bytes), offset, length, signal)) {
    // Bytes that are not copied now are overwritten by the next batch.
    for (const piece of batch) pieces.push(Uint8Array.from(piece));
  }
  return Buffer.concat(pieces);
}

async function* inPieces(bytes: Uint8Array, piece_bytes: number): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < bytes.length; at += piece_bytes) yield bytes.subarray(at, at + piece_bytes);
}

async function verify(
  encoded: Uint8Array,
  hash: Uint8Array,
  offset: number,
  length: number,
  piece = 1000,
): Promise<Buffer> {
  const out: Uint8Array[] = [];
  for await (const part of verifySlice(inPieces(encoded, piece), { hash, offset, length, group_bytes: GROUP_BYTES })) {
    out.push(Uint8Array.from(part));
  }
  return Buffer.concat(out);
}

test('any range of any object verifies against the address', async () => {
  const range = fc.record({
    size: fc.integer({ min: 0, max: 60_000 }),
    offset: fc.integer({ min: 0, max: 70_000 }),
    length: fc.integer({ min: 0, max: 70_000 }),
    piece: fc.integer({ min: 1, max: 9000 }),
  });
  await fc.assert(
    fc.asyncProperty(range, async ({ size, offset, length, piece }) => {
      const bytes = contentOf(size);
      const encoded = await slice(bytes, offset, length);
      assert.equal(encoded.length, sliceBytes(size, GROUP_BYTES, offset, length));
      const proven = await verify(encoded, nativeBlake3(bytes), offset, length, piece);
      assert.deepEqual(proven, Buffer.from(bytes.subarray(offset, offset + length)));
    }),
    { numRuns: 150 },
  );
});

test('a short last group is sent with its batch, because its memory is reused afterwards', async () => {
  for (const groups of [1, 2, 3, 4, 6, 7]) {
    for (const more of [1, 31, 32, 63, 64, 65]) {
      const bytes = contentOf(groups * GROUP_BYTES + more);
      const proven = await verify(await slice(bytes, 0, bytes.length), nativeBlake3(bytes), 0, bytes.length);
      assert.deepEqual(proven, Buffer.from(bytes), `${groups} groups and ${more} bytes`);
    }
  }
});

test('a slice contains only its groups and the path to them', async () => {
  const encoded = await slice(contentOf(16 * GROUP_BYTES), 5 * GROUP_BYTES + 7, 10);
  assert.equal(encoded.length, 8 + 4 * 64 + GROUP_BYTES);
});

test('a flipped byte, a truncation or an appended byte is detected, and no wrong byte is returned before', async () => {
  const bytes = contentOf(5 * GROUP_BYTES + 100);
  const hash = nativeBlake3(bytes);
  const offset = 2 * GROUP_BYTES;
  const encoded = await slice(bytes, offset, 4 * GROUP_BYTES);
  const damage = fc.oneof(
    fc.record({ kind: fc.constant('flip'), at: fc.nat(encoded.length - 1), by: fc.integer({ min: 1, max: 255 }) }),
    fc.record({ kind: fc.constant('cut'), at: fc.nat(encoded.length - 1), by: fc.constant(0) }),
    fc.record({ kind: fc.constant('add'), at: fc.nat(20), by: fc.nat(255) }),
  );
  await fc.assert(
    fc.asyncProperty(damage, async ({ kind, at, by }) => {
      let bad = Buffer.from(encoded);
      if (kind === 'flip') bad[at]! ^= by;
      if (kind === 'cut') bad = bad.subarray(0, at);
      if (kind === 'add') bad = Buffer.concat([bad, Buffer.alloc(at + 1, by)]);
      let position = offset;
      await assert.rejects(async () => {
        const init = { hash, offset, length: 4 * GROUP_BYTES, group_bytes: GROUP_BYTES };
        for await (const part of verifySlice(inPieces(bad, 777), init)) {
          assert.deepEqual(Buffer.from(part), Buffer.from(bytes.subarray(position, position + part.length)));
          position += part.length;
        }
      }, SliceError);
    }),
    { numRuns: 300 },
  );
});

test('a range beyond the end proves the length', async () => {
  const bytes = contentOf(3 * GROUP_BYTES + 5);
  const encoded = await slice(bytes, 1_000_000, 10);
  let size = 0;
  const init = { hash: nativeBlake3(bytes), offset: 1_000_000, length: 10, group_bytes: GROUP_BYTES };
  for await (const part of verifySlice(inPieces(encoded, 64), { ...init, onSize: (stated) => (size = stated) })) {
    assert.equal(part.length, 0);
  }
  assert.equal(size, bytes.length);
  encoded.writeBigUInt64LE(BigInt(bytes.length - 1), 0);
  await assert.rejects(verify(encoded, nativeBlake3(bytes), 1_000_000, 10), SliceError);
});

test('arbitrary bytes are refused with SliceError and nothing else', async () => {
  await fc.assert(
    fc.asyncProperty(fc.uint8Array({ maxLength: 400 }), async (junk) => {
      await assert.rejects(verify(junk, new Uint8Array(32), 0, 10), SliceError);
    }),
  );
});

test('skipped subtrees are reported with their proven value, so that local bytes can be verified', async () => {
  const bytes = contentOf(11 * GROUP_BYTES + 9);
  const offset = 7 * GROUP_BYTES;
  const skipped: Subtree[] = [];
  const init = { hash: nativeBlake3(bytes), offset, length: 1, group_bytes: GROUP_BYTES };
  const encoded = await slice(bytes, offset, 1);
  for await (const _ of verifySlice(inPieces(encoded, 99), { ...init, onSkipped: (each) => skipped.push(each) })) {
    // Only the skipped subtrees matter here.
  }
  assert.deepEqual(
    skipped.map(({ first, count }) => [first, count]),
    [
      [0, 4],
      [4, 2],
      [6, 1],
      [8, 4],
    ],
  );
  for (const { first, count, value } of skipped) {
    assert.deepEqual(Buffer.from(value), Buffer.from(await treeOf(bytes).value(first, count, signal)));
  }
});
