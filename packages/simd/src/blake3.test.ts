import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { test } from 'node:test';
import { blake3 as nativeBlake3 } from '@napi-rs/blake-hash';
import fc from 'fast-check';
import { blake3, combineSubtrees, parentValue, SUBTREE_BYTES_MAX, subtreeValue } from './blake3.ts';

const VECTORS = new URL('../../../../shared/vectors/blake3.json', import.meta.url);
const hex = (bytes: Uint8Array): string => Buffer.from(bytes).toString('hex');
/** The input of the official vectors: 0, 1, ..., 250, 0, 1, ... */
const pattern = (length: number): Uint8Array => Uint8Array.from({ length }, (_, index) => index % 251);
const addressByGroups = (bytes: Uint8Array, group_bytes: number): string => {
  if (bytes.length <= group_bytes) return hex(blake3(bytes));
  const values: Uint8Array[] = [];
  for (let at = 0; at < bytes.length; at += group_bytes) {
    values.push(subtreeValue(bytes.subarray(at, at + group_bytes), at));
  }
  return hex(combineSubtrees(values));
};

test(
  'the official BLAKE3 vectors pass',
  { skip: existsSync(VECTORS) ? false : `${VECTORS.pathname} does not exist` },
  () => {
    const { cases } = JSON.parse(readFileSync(VECTORS, 'utf8')) as { cases: { input_len: number; hash: string }[] };
    assert.ok(cases.length > 30);
    for (const { input_len, hash } of cases)
      assert.equal(hex(blake3(pattern(input_len))), hash.slice(0, 64), `${input_len}`);
  },
);

test('every length around chunk, group and lane boundaries matches the native hash', () => {
  const borders = [0, 1, 63, 64, 65, 1023, 1024, 1025, 2048, 3072, 4095, 4096, 4097, 5120, 65_535, 65_536, 65_537];
  for (const length of [...borders, SUBTREE_BYTES_MAX - 1, SUBTREE_BYTES_MAX]) {
    assert.equal(hex(blake3(pattern(length))), nativeBlake3(pattern(length)).toString('hex'), `${length} bytes`);
  }
});

test('combining group values gives the address of the object, for any content, length and group size', () => {
  const input = fc.record({
    length: fc.integer({ min: 0, max: 400_000 }),
    seed: fc.integer(),
    group_bytes: fc.constantFrom(1024, 4096, 65_536, 131_072),
  });
  fc.assert(
    fc.property(input, ({ length, seed, group_bytes }) => {
      const bytes = new Uint8Array(length);
      for (let at = 0, x = seed | 1; at < length; at++)
        bytes[at] = (x = Math.imul(x, 1_664_525) + 1_013_904_223) >>> 24;
      assert.equal(addressByGroups(bytes, group_bytes), nativeBlake3(bytes).toString('hex'));
    }),
    { numRuns: 60 },
  );
});

test('the chunk counter exceeds 32 bits', () => {
  // Two subtrees of the same bytes at offsets whose counters differ only above bit 32 must differ.
  const group = pattern(1024);
  const low = subtreeValue(group, 0);
  assert.notEqual(hex(subtreeValue(group, 2 ** 32 * 1024)), hex(low));
});

test('bytes that do not form one subtree are refused', () => {
  assert.throws(() => subtreeValue(pattern(4096), 1024), /not form one subtree/);
  assert.throws(() => subtreeValue(pattern(1024), 1), /not form one subtree/);
  assert.throws(() => subtreeValue(pattern(1024), -1024), /not form one subtree/);
  assert.throws(() => subtreeValue(new Uint8Array(0), 0), /empty/);
  assert.throws(() => blake3(new Uint8Array(SUBTREE_BYTES_MAX + 1)), /at most/);
  assert.throws(() => combineSubtrees([new Uint8Array(32)]), /at least two/);
  assert.throws(() => parentValue(new Uint8Array(31), new Uint8Array(32), true), /32 bytes/);
});
