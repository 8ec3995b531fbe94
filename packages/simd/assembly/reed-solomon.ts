// GF(256) matrix multiplication over whole shards, the one inner loop of Reed-Solomon encoding and rebuilding.
//
// A product c * x is two table look-ups, one for each nibble of x: swizzle does sixteen of them at once. A table pair is
// 32 bytes (16 for the low nibble, 16 for the high one); `tables` holds one pair for each (source, row), rows innermost.
// `sources` and `targets` are lists of addresses, so that shards can be anywhere. Lengths are multiples of 32. Rows are
// processed three at a time, so that 6+3 reads every source byte once, and 32 bytes at a time, so that a loaded table is
// used twice. With `plain`, all factors of the first row and of the first source are 1: there a product is the byte
// itself, without a look-up. The inner loops are inlined for each case, so that none of them branches.

// @ts-ignore: decorator
@inline
function product(low_table: v128, high_table: v128, low: v128, high: v128): v128 {
  // Nibbles are below 16, so both instructions give the same result.
  if (ASC_FEATURE_RELAXED_SIMD)
    return v128.xor(i8x16.relaxed_swizzle(low_table, low), i8x16.relaxed_swizzle(high_table, high));
  return v128.xor(i8x16.swizzle(low_table, low), i8x16.swizzle(high_table, high));
}

// @ts-ignore: decorator
@inline
function threeRows(
  sources: usize,
  sourcesEnd: usize,
  targets: usize,
  length: usize,
  tables: usize,
  tableStep: usize,
  isFirstSourcePlain: bool,
  isFirstRowPlain: bool,
): void {
  const nibble = i8x16.splat(15);
  const targetA = load<usize>(targets);
  const targetB = load<usize>(targets, 4);
  const targetC = load<usize>(targets, 8);
  for (let at: usize = 0; at < length; at += 32) {
    let a0 = i8x16.splat(0);
    let a1 = i8x16.splat(0);
    let list = sources;
    let table = tables;
    if (isFirstSourcePlain) {
      const source = load<usize>(list) + at;
      a0 = v128.load(source);
      a1 = v128.load(source, 16);
      list += 4;
      table += tableStep;
    }
    let b0 = a0;
    let b1 = a1;
    let c0 = a0;
    let c1 = a1;
    for (; list < sourcesEnd; list += 4) {
      const source = load<usize>(list) + at;
      const x0 = v128.load(source);
      const x1 = v128.load(source, 16);
      const low0 = v128.and(x0, nibble);
      const low1 = v128.and(x1, nibble);
      const high0 = i8x16.shr_u(x0, 4);
      const high1 = i8x16.shr_u(x1, 4);
      if (isFirstRowPlain) {
        a0 = v128.xor(a0, x0);
        a1 = v128.xor(a1, x1);
      } else {
        const tl = v128.load(table);
        const th = v128.load(table, 16);
        a0 = v128.xor(a0, product(tl, th, low0, high0));
        a1 = v128.xor(a1, product(tl, th, low1, high1));
      }
      let tl = v128.load(table, 32);
      let th = v128.load(table, 48);
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

// @ts-ignore: decorator
@inline
function oneRow(
  sources: usize,
  sourcesEnd: usize,
  targets: usize,
  length: usize,
  tables: usize,
  tableStep: usize,
  isPlain: bool,
): void {
  const nibble = i8x16.splat(15);
  const target = load<usize>(targets);
  for (let at: usize = 0; at < length; at += 32) {
    let a0 = i8x16.splat(0);
    let a1 = i8x16.splat(0);
    let table = tables;
    for (let list = sources; list < sourcesEnd; list += 4) {
      const source = load<usize>(list) + at;
      const x0 = v128.load(source);
      const x1 = v128.load(source, 16);
      if (isPlain) {
        a0 = v128.xor(a0, x0);
        a1 = v128.xor(a1, x1);
      } else {
        const tl = v128.load(table);
        const th = v128.load(table, 16);
        a0 = v128.xor(a0, product(tl, th, v128.and(x0, nibble), i8x16.shr_u(x0, 4)));
        a1 = v128.xor(a1, product(tl, th, v128.and(x1, nibble), i8x16.shr_u(x1, 4)));
        table += tableStep;
      }
    }
    v128.store(target + at, a0);
    v128.store(target + at, a1, 16);
  }
}

export function multiply(
  sources: usize,
  sourceCount: usize,
  targets: usize,
  targetCount: usize,
  length: usize,
  tables: usize,
  plain: bool,
): void {
  const step = targetCount << 5;
  const end = sources + (sourceCount << 2);
  let row: usize = 0;
  for (; row + 3 <= targetCount; row += 3) {
    const to = targets + (row << 2);
    const from = tables + (row << 5);
    if (!plain) threeRows(sources, end, to, length, from, step, false, false);
    else if (row > 0) threeRows(sources, end, to, length, from, step, true, false);
    else threeRows(sources, end, to, length, from, step, true, true);
  }
  for (; row < targetCount; row++) {
    const to = targets + (row << 2);
    const from = tables + (row << 5);
    if (plain && row == 0) oneRow(sources, end, to, length, from, step, true);
    else oneRow(sources, end, to, length, from, step, false);
  }
}
