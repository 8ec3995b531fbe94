import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { Frontier } from './frontier.ts';
import { EMPTY_ROOT, HASH_BYTES, leafHash } from './hash.ts';
import { path as referencePath, proof as referenceProof, treeHash } from '../testing/index.ts';
import { TileHashes } from '../tiles/tile-hashes.ts';
import { TILE_WIDTH, tilePath, widthAt } from '../tiles/tiles.ts';
import { consistencyProof, inclusionProof, rangeHash, verifyConsistency, verifyInclusion } from './tree.ts';

/** The test vectors of Certificate Transparency: eight entries, and the root after each. */
const CT_ENTRIES = ['', '00', '10', '2021', '3031', '40414243', '5051525354555657', '606162636465666768696a6b6c6d6e6f'];
const CT_ROOTS = [
  '6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d',
  'fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125',
  'aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77',
  'd37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7',
  '4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4',
  '76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef',
  'ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c',
  '5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328',
];

const entriesOf = (count: number): Buffer[] =>
  Array.from({ length: count }, (_, index) => Buffer.from(`entry ${index}`));

/** Tiles of a tree, and how to read them. */
class Tree {
  readonly frontier = Frontier.empty();
  readonly #levels: Uint8Array[][] = [];

  constructor(entries: readonly Uint8Array[]) {
    for (const entry of entries) {
      this.frontier.append(leafHash(entry), (level, hash) => (this.#levels[level] ??= []).push(hash));
    }
  }

  hashes(size: number): TileHashes {
    return new TileHashes(size, async (level, index, width) => {
      assert.equal(width, widthAt(level, index, size), tilePath({ level, index, width }));
      return Buffer.concat((this.#levels[level] ?? []).slice(index * TILE_WIDTH, index * TILE_WIDTH + width));
    });
  }
}

const asBuffers = (hashes: readonly Uint8Array[]): Buffer[] => hashes.map((hash) => Buffer.from(hash));

test('roots match the Certificate Transparency vectors', () => {
  assert.equal(
    Buffer.from(EMPTY_ROOT).toString('hex'),
    'e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855',
  );
  const frontier = Frontier.empty();
  for (const [index, entry] of CT_ENTRIES.entries()) {
    frontier.append(leafHash(Buffer.from(entry, 'hex')), () => undefined);
    assert.equal(Buffer.from(frontier.root()).toString('hex'), CT_ROOTS[index]);
  }
});

test('proofs match the RFC and verify, for every index and size of small trees', async () => {
  const all = entriesOf(33);
  const tree = new Tree(all);
  for (let size = 1; size <= all.length; size++) {
    const entries = all.slice(0, size);
    const root = treeHash(entries);
    for (let index = 0; index < size; index++) {
      const path = await inclusionProof(tree.hashes(size), index, size);
      assert.deepEqual(asBuffers(path), referencePath(index, entries));
      assert.ok(verifyInclusion({ leaf: leafHash(all[index]!), index, size, path, root }));
    }
    for (let from = 0; from <= size; from++) {
      const path = await consistencyProof(tree.hashes(size), from, size);
      assert.deepEqual(asBuffers(path), referenceProof(from, entries));
      const from_root = treeHash(all.slice(0, from));
      assert.ok(verifyConsistency({ from, from_root, to: size, to_root: root, path }), `${from} of ${size}`);
    }
  }
});

const SIZE_MAX = 1400;
const large = entriesOf(SIZE_MAX);
const largeTree = new Tree(large);

test('proofs from tiles match the RFC, for any tree', async () => {
  const sizes = fc.tuple(fc.integer({ min: 1, max: SIZE_MAX }), fc.nat(), fc.nat());
  await fc.assert(
    fc.asyncProperty(sizes, async ([size, a, b]) => {
      const [index, from] = [a % size, b % (size + 1)];
      const entries = large.slice(0, size);
      const hashes = largeTree.hashes(size);
      assert.deepEqual(Buffer.from(await rangeHash(hashes, 0, size)), treeHash(entries));
      assert.deepEqual(asBuffers(await inclusionProof(hashes, index, size)), referencePath(index, entries));
      assert.deepEqual(asBuffers(await consistencyProof(hashes, from, size)), referenceProof(from, entries));
    }),
    { numRuns: 60 },
  );
});

test('a frontier that was read continues like the one that grew', async () => {
  for (const size of [0, 1, 255, 256, 257, 511, 512, 1000]) {
    const frontier = await Frontier.read(largeTree.hashes(size), size);
    for (const entry of large.slice(size)) frontier.append(leafHash(entry), () => undefined);
    assert.deepEqual(Buffer.from(frontier.root()), Buffer.from(largeTree.frontier.root()));
  }
});

test('a modified proof does not verify', async () => {
  const size = 300;
  const root = treeHash(large.slice(0, size));
  const arbitrary = fc.record({
    index: fc.integer({ min: 0, max: size - 1 }),
    from: fc.integer({ min: 1, max: size - 1 }),
    what: fc.constantFrom('flip', 'drop', 'add', 'swap', 'shift', 'root', 'old root'),
    at: fc.nat(),
  });
  await fc.assert(
    fc.asyncProperty(arbitrary, async ({ index, from, what, at }) => {
      const leaf = leafHash(large[index]!);
      const inclusion = await inclusionProof(largeTree.hashes(size), index, size);
      const consistency = await consistencyProof(largeTree.hashes(size), from, size);
      const old = treeHash(large.slice(0, from));
      const from_root = what === 'old root' ? changed([old], 'flip', at)[0]! : old;
      const shift = what === 'shift' ? 1 : 0;
      const to_root = what === 'root' ? changed([root], 'flip', at)[0]! : root;
      const other = (index + shift) % size;
      const isIn = verifyInclusion({ leaf, index: other, size, path: changed(inclusion, what, at), root: to_root });
      assert.equal(isIn, what === 'old root', 'inclusion');
      const path = changed(consistency, what, at);
      const isOne = verifyConsistency({ from: from + shift, from_root, to: size, to_root, path });
      assert.equal(isOne, false, 'consistency');
    }),
  );
});

function changed(hashes: readonly Uint8Array[], what: string, at: number): Uint8Array[] {
  const copy = hashes.map((hash) => Uint8Array.from(hash));
  const index = copy.length === 0 ? 0 : at % copy.length;
  if (copy.length === 0 && !['shift', 'root', 'old root'].includes(what)) return [new Uint8Array(HASH_BYTES)];
  if (what === 'flip') copy[index]![at % HASH_BYTES]! ^= 1 << (at % 8);
  if (what === 'drop') copy.splice(index, 1);
  if (what === 'add') copy.splice(index, 0, new Uint8Array(HASH_BYTES).fill(at));
  if (what === 'swap' && copy.length > 1) copy.push(copy.shift()!);
  else if (what === 'swap') copy.pop();
  return copy;
}

test('verification never throws, for any input', () => {
  const hash = fc.uint8Array({ minLength: 0, maxLength: 33 });
  const number = fc.oneof(fc.nat(), fc.integer(), fc.double(), fc.constantFrom(2 ** 53, 2 ** 60, -1, 0.5));
  fc.assert(
    fc.property(hash, hash, number, number, fc.array(hash, { maxLength: 60 }), (leaf, root, index, size, path) => {
      assert.equal(verifyInclusion({ leaf, index, size, path, root }), false);
      const isEmpty = index === 0 && path.length === 0;
      if (!isEmpty) {
        assert.equal(verifyConsistency({ from: index, from_root: leaf, to: size, to_root: root, path }), false);
      }
    }),
  );
});
