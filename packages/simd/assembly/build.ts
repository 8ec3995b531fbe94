/**
 * `npm run build --workspace @ron/simd`: writes blake3.ts, compiles `index.ts` to `src/simd.wasm`, and for browsers without
 * relaxed SIMD to `src/simd-baseline.wasm`.
 *
 * The compiler is 100 MB and is needed only for changes in this folder, so it is not a dependency: `npm exec` fetches the
 * pinned version. The hash of the sources is stored in the module, so that a test can detect a stale module without the
 * compiler.
 */
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { blake3Source } from './write-blake3.ts';

const COMPILER = 'assemblyscript@0.28.20';
const FLAGS = [
  '--optimizeLevel',
  '3',
  '--runtime',
  'stub',
  '--noAssert',
  '--initialMemory',
  '4',
  '--enable',
  'simd',
  '--use',
  'abort=',
];
const folder = new URL('./', import.meta.url).pathname;

export interface Target {
  readonly file: URL;
  readonly flags: readonly string[];
}

export const TARGETS: readonly Target[] = [
  { file: new URL('../src/simd.wasm', import.meta.url), flags: ['--enable', 'relaxed-simd'] },
  { file: new URL('../src/simd-baseline.wasm', import.meta.url), flags: [] },
];
const HASH_SECTION = 'source-sha256';

/** One hash over the inputs of the module: sources, generator, compiler and its flags. */
export function sourceHash({ flags }: Target): string {
  const hash = createHash('sha256').update(JSON.stringify([COMPILER, [...FLAGS, ...flags], blake3Source()]));
  for (const file of ['index.ts', 'reed-solomon.ts']) hash.update(readFileSync(join(folder, file)));
  return hash.digest('hex');
}

/** The hash stored in a compiled module. */
export function hashOf(wasm: Uint8Array<ArrayBuffer>): string {
  const [section] = WebAssembly.Module.customSections(new WebAssembly.Module(wasm), HASH_SECTION);
  return section === undefined ? 'none' : Buffer.from(section).toString('latin1');
}

function withHash(wasm: Uint8Array, hash: string): Uint8Array<ArrayBuffer> {
  const name = Buffer.from(HASH_SECTION, 'latin1');
  const body = Buffer.concat([Buffer.from([name.length]), name, Buffer.from(hash, 'latin1')]);
  // A custom section: id 0, then its length; both lengths fit one LEB128 byte.
  return new Uint8Array(Buffer.concat([wasm, Buffer.from([0, body.length]), body]));
}

/** Compiles the sources and returns the module; throws with the compiler's output if it fails or cannot be fetched. */
export function compile(target: Target): Uint8Array<ArrayBuffer> {
  writeFileSync(join(folder, 'blake3.ts'), blake3Source());
  const out = mkdtempSync(join(tmpdir(), 'ron-simd-'));
  try {
    const compiled = join(out, 'simd.wasm');
    const args = [
      'exec',
      '--yes',
      `--package=${COMPILER}`,
      '--',
      'asc',
      join(folder, 'index.ts'),
      '-o',
      compiled,
      ...FLAGS,
      ...target.flags,
    ];
    const child = spawnSync('npm', args, { encoding: 'utf8', cwd: out, timeout: 300_000 });
    if (child.status !== 0) throw new Error(`the compiler failed: ${child.stdout}${child.stderr}`);
    return withHash(readFileSync(compiled), sourceHash(target));
  } finally {
    rmSync(out, { recursive: true });
    rmSync(join(folder, 'blake3.ts'));
  }
}

if (import.meta.main) {
  for (const target of TARGETS) {
    const wasm = compile(target);
    writeFileSync(target.file, wasm);
    process.stdout.write(`${target.file.pathname}: ${wasm.length} bytes\n`);
  }
}
