/** Verified entries: the values of the object's tree, no wrong entry is accepted, and no long turn of the event loop. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { installSched, NEVER, sched } from '@ron/kernel';
import { BLAKE3_BYTES, combineSubtrees, parentValue } from '@ron/simd';
import fc from 'fast-check';
import { ENTRY_BYTES, EntryTree, ManifestError } from './entry-tree.ts';

function entriesOf(count: number, seed = 1): Buffer {
  const bytes = Buffer.allocUnsafe(count * ENTRY_BYTES);
  for (let at = 0, x = seed; at < bytes.length; at += 4) bytes.writeInt32LE((x = Math.imul(x, 1_664_525) + 1), at);
  return bytes;
}

const valuesIn = (entries: Buffer): Uint8Array[] =>
  Array.from({ length: entries.length / ENTRY_BYTES }, (_, index) =>
    entries.subarray(index * ENTRY_BYTES + BLAKE3_BYTES, (index + 1) * ENTRY_BYTES),
  );

/** By the definition of the tree: the left child has the largest power of two below the count. */
function slowValue(values: readonly Uint8Array[]): Uint8Array {
  if (values.length === 1) return values[0]!;
  const left = 2 ** (Math.ceil(Math.log2(values.length)) - 1);
  return parentValue(slowValue(values.slice(0, left)), slowValue(values.slice(left)), false);
}

test('every subtree has the value of the definition, and the root is the address', async () => {
  for (const count of [2, 3, 5, 8, 9, 31, 64, 1000, 1025, 2049, 4096]) {
    const entries = entriesOf(count, count);
    const values = valuesIn(entries);
    const root = combineSubtrees(values);
    const tree = await EntryTree.verify(entries, { value: root, isRoot: true }, NEVER);
    await EntryTree.verify(entries, { value: slowValue(values), isRoot: false }, NEVER);
    for (let size = 1; size < count; size *= 2) {
      for (const first of [0, size, Math.floor((count - 1) / size) * size]) {
        const part = values.slice(first, first + size);
        assert.deepEqual(
          Buffer.from(tree.valueOf(first, part.length)),
          Buffer.from(slowValue(part)),
          `${count} ${first}`,
        );
      }
    }
    assert.deepEqual(Buffer.from(tree.subtreeAt(count - 1)), Buffer.from(values.at(-1)!));
    assert.ok(tree.cost_bytes >= entries.length && tree.cost_bytes < entries.length * 1.2 + 2048);
  }
});

test('a changed value is refused at any place', async () => {
  const entries = entriesOf(1500);
  const expected = { value: combineSubtrees(valuesIn(entries)), isRoot: true };
  await fc.assert(
    fc.asyncProperty(fc.nat(1499), fc.nat(31), async (index, byte) => {
      const changed = Buffer.from(entries);
      changed[index * ENTRY_BYTES + BLAKE3_BYTES + byte]! ^= 1;
      await assert.rejects(EntryTree.verify(changed, expected, NEVER), ManifestError);
    }),
    { numRuns: 30 },
  );
  await assert.rejects(EntryTree.verify(entries.subarray(0, -ENTRY_BYTES), expected, NEVER), ManifestError);
  await assert.rejects(EntryTree.verify(entries.subarray(0, -1), expected, NEVER), ManifestError);
});

test('a full page is verified in several turns of the event loop', async () => {
  const entries = entriesOf(4096);
  const value = combineSubtrees(valuesIn(entries));
  let pauses = 0;
  const real = sched;
  installSched({ ...real, pause: (label) => ((pauses += 1), real.pause(label)) });
  try {
    await EntryTree.verify(entries, { value, isRoot: true }, NEVER);
  } finally {
    installSched(real);
  }
  assert.equal(pauses, 3);
});
