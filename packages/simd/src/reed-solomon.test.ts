import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { ReedSolomon } from './reed-solomon.ts';

/** An independent GF(256) product: carry-less multiplication, reduced bit by bit. */
function times(a: number, b: number): number {
  let product = 0;
  for (let bit = 0; bit < 8; bit++) if ((b >> bit) & 1) product ^= a << bit;
  for (let bit = 15; bit >= 8; bit--) if ((product >> bit) & 1) product ^= 0x11d << (bit - 8);
  return product;
}

const inverse = (a: number): number => {
  for (let x = 1; x < 256; x++) if (times(a, x) === 1) return x;
  throw new Error('zero has no inverse');
};

/** Parity by the definition of the code, one byte at a time. */
function parityByDefinition(data: Uint8Array[], row: number): Uint8Array {
  const out = new Uint8Array(data[0]!.length);
  data.forEach((shard, column) => {
    const factor = inverse((data.length + row) ^ column);
    shard.forEach((byte, at) => (out[at]! ^= times(factor, byte)));
  });
  return out;
}

const shardsOf = (count: number, length: number, seed: number): Uint8Array[] =>
  Array.from({ length: count }, (_, shard) =>
    Uint8Array.from({ length }, (_unused, at) => (seed + shard * 91 + at * 57) >>> 2),
  );

function combinations(from: number, choose: number): number[][] {
  if (choose === 0) return [[]];
  return Array.from({ length: from }, (_, last) => last).flatMap((last) =>
    combinations(last, choose - 1).map((rest) => [...rest, last]),
  );
}

test('parity is what the definition says, for any shape', () => {
  const shape = fc.record({
    k: fc.integer({ min: 1, max: 12 }),
    m: fc.integer({ min: 1, max: 5 }),
    length: fc.integer({ min: 1, max: 100 }),
    seed: fc.nat(),
  });
  fc.assert(
    fc.property(shape, ({ k, m, length, seed }) => {
      const data = shardsOf(k, length, seed);
      const parity = new ReedSolomon(k, m).encode(data);
      parity.forEach((shard, row) => assert.deepEqual(shard, parityByDefinition(data, row)));
    }),
  );
});

for (const [k, m] of [
  [6, 3],
  [4, 2],
  [10, 4],
] as const) {
  test(`losing any ${m} shards of ${k}+${m} loses nothing`, () => {
    const code = new ReedSolomon(k, m);
    const data = shardsOf(k, 333, 5);
    const all = [...data, ...code.encode(data)];
    const losses = combinations(k + m, m);
    for (const lost of losses) {
      const rebuilt = code.rebuild(all.map((shard, index) => (lost.includes(index) ? undefined : shard)));
      assert.deepEqual([...rebuilt.keys()], lost);
      for (const index of lost) assert.deepEqual(rebuilt.get(index), all[index]);
    }
  });
}

test('what cannot be rebuilt is refused with the count', () => {
  const code = new ReedSolomon(2, 1);
  assert.throws(() => code.rebuild([undefined, undefined, new Uint8Array(4)]), /1 shards are left, 2 are needed/);
  assert.throws(() => code.rebuild([undefined]), /expected 3 places/);
  assert.throws(() => code.encode([new Uint8Array(4), new Uint8Array(5)]), /one length/);
  assert.throws(() => new ReedSolomon(200, 57), /at most 256/);
});
