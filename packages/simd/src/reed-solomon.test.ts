import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { ReedSolomon, Stripe } from './reed-solomon.ts';

/** An independent GF(256) product: carry-less multiplication with bitwise reduction. */
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

/** The matrix by definition: inverted sums of x and y, scaled so that the first row and column are ones. */
function factorOf(k: number, row: number, column: number): number {
  const cauchy = (r: number, c: number): number => inverse((k + r) ^ c);
  const above = times(cauchy(row, column), inverse(cauchy(0, column)));
  return times(above, inverse(times(cauchy(row, 0), inverse(cauchy(0, 0)))));
}

/** Parity by the definition of the code, byte by byte. */
function parityByDefinition(data: Uint8Array[], row: number): Uint8Array {
  const out = new Uint8Array(data[0]!.length);
  data.forEach((shard, column) => {
    const factor = factorOf(data.length, row, column);
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

test('parity matches the definition, for any shape', () => {
  const shape = fc.record({
    k: fc.integer({ min: 1, max: 12 }),
    m: fc.integer({ min: 1, max: 7 }),
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

test('the first parity shard is the sum of the data', () => {
  const data = shardsOf(6, 100, 3);
  const [first] = new ReedSolomon(6, 3).encode(data);
  first!.forEach((byte, at) =>
    assert.equal(
      byte,
      data.map((shard) => shard[at]!).reduce((sum, each) => sum ^ each),
    ),
  );
});

for (const [k, m] of [
  [6, 3],
  [4, 2],
  [2, 3],
  [10, 4],
] as const) {
  test(`any ${m} lost shards of ${k}+${m} can be rebuilt`, () => {
    const coder = new ReedSolomon(k, m);
    const data = shardsOf(k, 333, 5);
    const all = [...data, ...coder.encode(data)];
    const losses = combinations(k + m, m);
    for (const lost of losses) {
      const rebuilt = coder.rebuild(all.map((shard, index) => (lost.includes(index) ? undefined : shard)));
      assert.deepEqual([...rebuilt.keys()], lost);
      for (const index of lost) assert.deepEqual(rebuilt.get(index), all[index]);
    }
  });
}

test('a rebuild with too few shards is refused with the count', () => {
  const code = new ReedSolomon(2, 1);
  assert.throws(() => code.rebuild([undefined, undefined, new Uint8Array(4)]), /1 shards are present, 2 are needed/);
  assert.throws(() => code.rebuild([undefined]), /expected 3 shards/);
  assert.throws(() => code.encode([new Uint8Array(4), new Uint8Array(5)]), /the same length/);
  assert.throws(() => new ReedSolomon(200, 57), /at most 256/);
});

test('shards in place give the same parity and can be rebuilt, even if their lengths differ', () => {
  const lengths = [333, 200, 1, 0, 333, 77];
  const stripe = new Stripe(6, 3, 400);
  const data = lengths.map((length, index) => shardsOf(6, length, 9)[index]!);
  const padded = data.map((shard) => Uint8Array.from({ length: 333 }, (_, at) => shard[at] ?? 0));
  for (const shard of stripe.shards) shard.fill(0xaa);
  data.forEach((shard, index) => stripe.set(index, shard, 333));
  stripe.encode(333);
  const all = stripe.shards.map((shard) => shard.slice(0, 333));
  assert.deepEqual(all.slice(0, 6), padded);
  all.slice(6).forEach((shard, row) => assert.deepEqual(shard, parityByDefinition(padded, row)));
  for (const lost of [1, 2, 3].flatMap((count) => combinations(9, count))) {
    for (const index of lost) stripe.shards[index]!.fill(0x55);
    const present = [...all.keys()].filter((index) => !lost.includes(index));
    stripe.rebuild(present, lost, 333);
    for (const index of lost) assert.deepEqual(stripe.shards[index]!.slice(0, 333), all[index]);
  }
});

test('a stripe refuses shards that are too long, and too few shards', () => {
  const stripe = new Stripe(2, 1, 32);
  assert.throws(() => stripe.encode(33), /at most 32 bytes/);
  assert.throws(() => stripe.rebuild([0], [1], 32), /1 shards are present, 2 are needed/);
});
