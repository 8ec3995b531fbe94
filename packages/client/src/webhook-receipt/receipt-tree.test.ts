import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { blake3 } from '@ron/simd';
import { leafOfText, rootFromPath, treePath, treeRoot, treeSize } from './receipt-tree.ts';

const leafOf = (text: string): Uint8Array => leafOfText(new TextEncoder().encode(text));
const leaves = (count: number): Uint8Array[] => Array.from({ length: count }, (_, at) => leafOf(`receipt ${at}`));

/** The definition of RFC 6962, section 2.1. */
function rootByDefinition(level: readonly Uint8Array[]): Uint8Array {
  if (level.length === 1) return level[0]!;
  let split = 1;
  while (split * 2 < level.length) split *= 2;
  const [left, right] = [rootByDefinition(level.slice(0, split)), rootByDefinition(level.slice(split))];
  return blake3(Uint8Array.of(1, ...left, ...right));
}

test('the tree is that of RFC 6962 over the leaves and their padding, for every size up to 128', () => {
  for (let size = 1; size <= 128; size += 1) {
    const level = leaves(size);
    const padding = Array.from({ length: treeSize(size) - size }, () => blake3(Uint8Array.of(0)));
    assert.deepEqual(treeRoot(level), rootByDefinition([...level, ...padding]), `${size} leaves`);
  }
});

test('a leaf is prefixed by 00, so a node cannot pass for one', () => {
  const [left, right] = leaves(2);
  const pair = Uint8Array.of(...left!, ...right!);
  assert.deepEqual(leafOf('x'), blake3(Uint8Array.of(0, 0x78)));
  assert.notDeepEqual(leafOfText(pair), treeRoot([left!, right!]));
});

test('every path of every tree leads to its root, and its length states the size', () => {
  for (let size = 1; size <= 128; size += 1) {
    const level = leaves(size);
    const root = treeRoot(level);
    assert.ok(treeSize(size) >= size && treeSize(size) < 2 * size);
    for (let index = 0; index < size; index += 1) {
      const path = treePath(level, index);
      assert.deepEqual(rootFromPath(level[index]!, index, path), root);
      assert.equal(2 ** path.length, treeSize(size));
    }
  }
});

test('no single bit of a leaf or of a path can change, and no index', () => {
  const shapes = fc.integer({ min: 1, max: 128 }).chain((size) =>
    fc.record({
      size: fc.constant(size),
      index: fc.integer({ min: 0, max: size - 1 }),
      bit: fc.nat({ max: 255 }),
    }),
  );
  fc.assert(
    fc.property(shapes, ({ size, index, bit }) => {
      const level = leaves(size);
      const root = treeRoot(level).toHex();
      const flipped = (hash: Uint8Array): Uint8Array =>
        hash.map((byte, at) => (at === bit >> 3 ? byte ^ (1 << (bit & 7)) : byte));
      const path = treePath(level, index);
      const leads = (leaf: Uint8Array, by: readonly Uint8Array[], at = index): boolean =>
        rootFromPath(leaf, at, by).toHex() === root;
      assert.ok(leads(level[index]!, path));
      assert.ok(!leads(flipped(level[index]!), path));
      for (let at = 0; at < path.length; at += 1) {
        assert.ok(!leads(level[index]!, path.with(at, flipped(path[at]!))), `hash ${at}`);
      }
      for (let other = 0; other < size; other += 1) {
        if (other !== index) assert.ok(!leads(level[index]!, path, other), `index ${other}`);
      }
    }),
    { numRuns: 100 },
  );
});
