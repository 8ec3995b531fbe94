import assert from 'node:assert/strict';
import { test } from 'node:test';
import { blake3 } from '@napi-rs/blake-hash';
import fc from 'fast-check';
import { formatAddress } from '@ron/proto';
import { BLAKE3_BYTES, combineInner, combineSubtrees, GROUP_BYTES } from '@ron/simd';
import { bytesOf } from '@ron/testkit';
import { GroupTree, treeParts } from './group-tree.ts';
import { groupValue } from './group-values.ts';

const split = (values: Uint8Array): Uint8Array[] =>
  Array.from({ length: values.length / BLAKE3_BYTES }, (_, at) =>
    values.subarray(at * BLAKE3_BYTES, (at + 1) * BLAKE3_BYTES),
  );

const treeOf = (count: number): GroupTree =>
  new GroupTree(treeParts(count * GROUP_BYTES - 5, bytesOf(count * BLAKE3_BYTES, count)));

test('the values of groups combine to the address of the file', () => {
  for (const size of [1, 1024, GROUP_BYTES, GROUP_BYTES + 1, 3 * GROUP_BYTES, 5 * GROUP_BYTES + 77]) {
    const file = bytesOf(size, size);
    const values: Uint8Array[] = [];
    for (let at = 0; at < size; at += GROUP_BYTES) {
      values.push(groupValue(file.subarray(at, at + GROUP_BYTES), at / GROUP_BYTES, size));
    }
    assert.equal(treeParts(size, Buffer.concat(values)).address, formatAddress(blake3(file)), `${size} bytes`);
  }
});

test('every subtree has the value that its groups combine to', () => {
  fc.assert(
    fc.property(fc.integer({ min: 2, max: 700 }), (count) => {
      const tree = treeOf(count);
      assert.equal(tree.address, formatAddress(combineSubtrees(split(tree.values))));
      // The nodes on both edges and a few others, as a slice requests them.
      const pending = [{ first: 0, count }];
      for (let node = pending.pop(); node !== undefined; node = pending.pop()) {
        if (node.count === 1) continue;
        const left = 2 ** (Math.ceil(Math.log2(node.count)) - 1);
        const children = [
          { first: node.first, count: left },
          { first: node.first + left, count: node.count - left },
        ];
        for (const child of children) {
          const values = split(tree.values).slice(child.first, child.first + child.count);
          assert.deepEqual(Buffer.from(tree.value(child.first, child.count)), Buffer.from(combineInner(values)));
        }
        pending.push(children[node.count % 2]!);
      }
    }),
    { numRuns: 20 },
  );
});

test('a long level is combined in parts with the same result', () => {
  const tree = treeOf(9001);
  assert.equal(tree.address, formatAddress(combineSubtrees(split(tree.values))));
});
