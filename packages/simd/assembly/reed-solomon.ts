// GF(256) matrix multiplication over whole shards, the one inner loop of Reed-Solomon encoding and rebuilding.
//
// A product c * x is two table look-ups, one for each nibble of x: swizzle does sixteen of them at once. A table pair is
// 32 bytes (16 for the low nibble, 16 for the high one); `tables` holds one pair for each (source, row), rows innermost.
// Lengths are multiples of 16. Rows are taken three at a time, so that 6+3 reads every source byte once.

// @ts-ignore: decorator
@inline
function product(tables: usize, low: v128, high: v128): v128 {
  return v128.xor(i8x16.relaxed_swizzle(v128.load(tables), low), i8x16.relaxed_swizzle(v128.load(tables, 16), high));
}

export function multiply(
  sources: usize,
  sourceCount: usize,
  targets: usize,
  targetCount: usize,
  stride: usize,
  length: usize,
  tables: usize,
): void {
  const nibble = i8x16.splat(15);
  const tableStep = targetCount << 5;
  let row: usize = 0;
  for (; row + 3 <= targetCount; row += 3) {
    const target = targets + row * stride;
    for (let at: usize = 0; at < length; at += 16) {
      let a = i8x16.splat(0);
      let b = i8x16.splat(0);
      let c = i8x16.splat(0);
      let table = tables + (row << 5);
      let source = sources + at;
      for (let k: usize = 0; k < sourceCount; k++) {
        const x = v128.load(source);
        const low = v128.and(x, nibble);
        const high = i8x16.shr_u(x, 4);
        a = v128.xor(a, product(table, low, high));
        b = v128.xor(b, product(table + 32, low, high));
        c = v128.xor(c, product(table + 64, low, high));
        table += tableStep;
        source += stride;
      }
      v128.store(target + at, a);
      v128.store(target + stride + at, b);
      v128.store(target + 2 * stride + at, c);
    }
  }
  for (; row < targetCount; row++) {
    const target = targets + row * stride;
    for (let at: usize = 0; at < length; at += 16) {
      let a = i8x16.splat(0);
      let table = tables + (row << 5);
      let source = sources + at;
      for (let k: usize = 0; k < sourceCount; k++) {
        const x = v128.load(source);
        a = v128.xor(a, product(table, v128.and(x, nibble), i8x16.shr_u(x, 4)));
        table += tableStep;
        source += stride;
      }
      v128.store(target + at, a);
    }
  }
}
