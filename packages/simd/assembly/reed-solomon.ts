// GF(256) matrix multiplication over whole shards, the one inner loop of Reed-Solomon encoding and rebuilding.
//
// A product c * x is two table look-ups, one for each nibble of x: swizzle does sixteen of them at once. A table pair is
// 32 bytes (16 for the low nibble, 16 for the high one); `tables` holds one pair for each (source, row), rows innermost.
// `sources` and `targets` are lists of addresses, so that shards can lie anywhere. Lengths are multiples of 32. Rows are
// taken three at a time, so that 6+3 reads every source byte once, and 32 bytes at a time, so that a table that was
// loaded is used twice.

// @ts-ignore: decorator
@inline
function product(low_table: v128, high_table: v128, low: v128, high: v128): v128 {
  return v128.xor(i8x16.relaxed_swizzle(low_table, low), i8x16.relaxed_swizzle(high_table, high));
}

export function multiply(
  sources: usize,
  sourceCount: usize,
  targets: usize,
  targetCount: usize,
  length: usize,
  tables: usize,
): void {
  const nibble = i8x16.splat(15);
  const tableStep = targetCount << 5;
  const sourcesEnd = sources + (sourceCount << 2);
  let row: usize = 0;
  for (; row + 3 <= targetCount; row += 3) {
    const targetA = load<usize>(targets + (row << 2));
    const targetB = load<usize>(targets + (row << 2), 4);
    const targetC = load<usize>(targets + (row << 2), 8);
    for (let at: usize = 0; at < length; at += 32) {
      let a0 = i8x16.splat(0);
      let a1 = i8x16.splat(0);
      let b0 = i8x16.splat(0);
      let b1 = i8x16.splat(0);
      let c0 = i8x16.splat(0);
      let c1 = i8x16.splat(0);
      let table = tables + (row << 5);
      for (let list = sources; list < sourcesEnd; list += 4) {
        const source = load<usize>(list) + at;
        const x0 = v128.load(source);
        const x1 = v128.load(source, 16);
        const low0 = v128.and(x0, nibble);
        const low1 = v128.and(x1, nibble);
        const high0 = i8x16.shr_u(x0, 4);
        const high1 = i8x16.shr_u(x1, 4);
        let tl = v128.load(table);
        let th = v128.load(table, 16);
        a0 = v128.xor(a0, product(tl, th, low0, high0));
        a1 = v128.xor(a1, product(tl, th, low1, high1));
        tl = v128.load(table, 32);
        th = v128.load(table, 48);
        b0 = v128.xor(b0, product(tl, th, low0, high0));
        b1 = v128.xor(b1, product(tl, th, low1, high1));
        tl = v128.load(table, 64);
        th = v128.load(table, 80);
        c0 = v128.xor(c0, product(tl, th, low0, high0));
        c1 = v128.xor(c1, product(tl, th, low1, high1));
        table += tableStep;
      }
      v128.store(targetA + at, a0);
      v128.store(targetA + at, a1, 16);
      v128.store(targetB + at, b0);
      v128.store(targetB + at, b1, 16);
      v128.store(targetC + at, c0);
      v128.store(targetC + at, c1, 16);
    }
  }
  for (; row < targetCount; row++) {
    const target = load<usize>(targets + (row << 2));
    for (let at: usize = 0; at < length; at += 32) {
      let a0 = i8x16.splat(0);
      let a1 = i8x16.splat(0);
      let table = tables + (row << 5);
      for (let list = sources; list < sourcesEnd; list += 4) {
        const source = load<usize>(list) + at;
        const x0 = v128.load(source);
        const x1 = v128.load(source, 16);
        const tl = v128.load(table);
        const th = v128.load(table, 16);
        a0 = v128.xor(a0, product(tl, th, v128.and(x0, nibble), i8x16.shr_u(x0, 4)));
        a1 = v128.xor(a1, product(tl, th, v128.and(x1, nibble), i8x16.shr_u(x1, 4)));
        table += tableStep;
      }
      v128.store(target + at, a0);
      v128.store(target + at, a1, 16);
    }
  }
}
