/**
 * Writes `blake3.ts`, the AssemblyScript of the BLAKE3 compression, four inputs at a time.
 *
 * The seven rounds are unrolled with the message permutation folded into the names, which makes it fast. It is generated,
 * because by hand it would be 112 lines of the same mix with other indices.
 */
const PERMUTATION = [2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8];
const IV = [
  '0x6A09E667',
  '0xBB67AE85',
  '0x3C6EF372',
  '0xA54FF53A',
  '0x510E527F',
  '0x9B05688C',
  '0x1F83D9AB',
  '0x5BE0CD19',
];
/** State indices that each of the eight mixes of a round works on: columns, then diagonals. */
const MIXES = [
  [0, 4, 8, 12],
  [1, 5, 9, 13],
  [2, 6, 10, 14],
  [3, 7, 11, 15],
  [0, 5, 10, 15],
  [1, 6, 11, 12],
  [2, 7, 8, 13],
  [3, 4, 9, 14],
] as const;

const ROTATE_BYTES: Record<number, string> = {
  16: '2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13',
  8: '1, 2, 3, 0, 5, 6, 7, 4, 9, 10, 11, 8, 13, 14, 15, 12',
};

/** Rotation to the right; by whole bytes it is a shuffle, which is one instruction. */
function rotate(x: string, bits: number): string {
  const bytes = ROTATE_BYTES[bits];
  if (bytes !== undefined) return `v128.shuffle<u8>(${x}, ${x}, ${bytes})`;
  return `v128.or(i32x4.shr_u(${x}, ${bits}), i32x4.shl(${x}, ${32 - bits}))`;
}

function mix([a, b, c, d]: readonly [number, number, number, number], x: number, y: number): string[] {
  const half = (message: number, first: number, second: number): string[] => [
    `v${a} = i32x4.add(i32x4.add(v${a}, v${b}), v128.load(words, ${message * 16}));`,
    `t = v128.xor(v${d}, v${a}); v${d} = ${rotate('t', first)};`,
    `v${c} = i32x4.add(v${c}, v${d}); t = v128.xor(v${b}, v${c}); v${b} = ${rotate('t', second)};`,
  ];
  return [...half(x, 16, 12), ...half(y, 8, 7)];
}

function rounds(): string[] {
  const lines: string[] = [];
  let order = Array.from({ length: 16 }, (_, index) => index);
  for (let round = 0; round < 7; round++) {
    lines.push(`// round ${round + 1}`);
    MIXES.forEach((indices, at) => lines.push(...mix(indices, order[2 * at]!, order[2 * at + 1]!)));
    order = PERMUTATION.map((index) => order[index]!);
  }
  return lines;
}

/** Loads one block of each of the four inputs and transposes it, so that word i of all four is in one vector. */
function loadWords(): string[] {
  const lines: string[] = [];
  for (let quarter = 0; quarter < 4; quarter++) {
    for (let lane = 0; lane < 4; lane++) {
      lines.push(`const r${quarter}${lane} = v128.load(block + ${lane} * stride, ${quarter * 16});`);
    }
    lines.push(
      ...transpose(
        [0, 1, 2, 3].map((lane) => `r${quarter}${lane}`),
        `w${quarter}`,
        'words',
        quarter * 64,
        16,
      ),
    );
  }
  return lines;
}

/** Stores the 4x4 transpose of four vectors at `base + offset`, each `step` bytes after the one before. */
function transpose(rows: string[], prefix: string, base: string, offset: number, step: number): string[] {
  const [a, b, c, d] = rows;
  return [
    `const ${prefix}a = v128.shuffle<u32>(${a}, ${b}, 0, 4, 1, 5);`,
    `const ${prefix}b = v128.shuffle<u32>(${a}, ${b}, 2, 6, 3, 7);`,
    `const ${prefix}c = v128.shuffle<u32>(${c}, ${d}, 0, 4, 1, 5);`,
    `const ${prefix}d = v128.shuffle<u32>(${c}, ${d}, 2, 6, 3, 7);`,
    `v128.store(${base}, v128.shuffle<u64>(${prefix}a, ${prefix}c, 0, 2), ${offset});`,
    `v128.store(${base}, v128.shuffle<u64>(${prefix}a, ${prefix}c, 1, 3), ${offset + step});`,
    `v128.store(${base}, v128.shuffle<u64>(${prefix}b, ${prefix}d, 0, 2), ${offset + 2 * step});`,
    `v128.store(${base}, v128.shuffle<u64>(${prefix}b, ${prefix}d, 1, 3), ${offset + 3 * step});`,
  ];
}

const indent = (depth: number, lines: string[]): string =>
  lines.map((line) => `${'  '.repeat(depth)}${line}\n`).join('');
const eight = (line: (index: number) => string): string[] => Array.from({ length: 8 }, (_, index) => line(index));

export function blake3Source(): string {
  return (
    '// Written by write-blake3.ts. Change that, not this.\n' +
    '// Four chaining values at once: input i starts at `inputs + i * stride` and has `blocks` blocks of 64 bytes.\n' +
    'const words: usize = memory.data(256, 16);\n\n' +
    'export function compress4(\n' +
    '  inputs: usize, stride: usize, blocks: u32, counter: u64, counterStep: u64,\n' +
    '  flags: u32, flagsFirst: u32, flagsLast: u32, lengthLast: u32, out: usize,\n' +
    '): void {\n' +
    indent(1, [
      'let t: v128 = i8x16.splat(0);',
      ...eight((i) => `let h${i} = i32x4.splat(${IV[i]});`),
      'const c0 = counter, c1 = c0 + counterStep, c2 = c1 + counterStep, c3 = c2 + counterStep;',
      'let counterLow = i32x4.replace_lane(i32x4.splat(<i32>c0), 1, <i32>c1);',
      'counterLow = i32x4.replace_lane(i32x4.replace_lane(counterLow, 2, <i32>c2), 3, <i32>c3);',
      'let counterHigh = i32x4.replace_lane(i32x4.splat(<i32>(c0 >> 32)), 1, <i32>(c1 >> 32));',
      'counterHigh = i32x4.replace_lane(i32x4.replace_lane(counterHigh, 2, <i32>(c2 >> 32)), 3, <i32>(c3 >> 32));',
      'for (let index: u32 = 0; index < blocks; index++) {',
    ]) +
    indent(2, [
      'const block = inputs + (<usize>index << 6);',
      'const isLast = index + 1 == blocks;',
      ...loadWords(),
      ...eight((i) => `let v${i} = h${i};`),
      ...[0, 1, 2, 3].map((i) => `let v${i + 8} = i32x4.splat(${IV[i]});`),
      'let v12 = counterLow;',
      'let v13 = counterHigh;',
      'let v14 = i32x4.splat(isLast ? lengthLast : 64);',
      'let v15 = i32x4.splat(flags | (index == 0 ? flagsFirst : 0) | (isLast ? flagsLast : 0));',
      ...rounds(),
      ...eight((i) => `h${i} = v128.xor(v${i}, v${i + 8});`),
    ]) +
    '  }\n' +
    indent(1, [
      ...transpose(['h0', 'h1', 'h2', 'h3'], 'low', 'out', 0, 32),
      ...transpose(['h4', 'h5', 'h6', 'h7'], 'high', 'out', 16, 32),
    ]) +
    '}\n'
  );
}
