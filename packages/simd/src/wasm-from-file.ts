/** The compiled module under Node. */
// oxlint-disable-next-line ron/no-blocking-calls -- at import, before the service starts
import { readFileSync } from 'node:fs';

export const wasm = new WebAssembly.Module(readFileSync(new URL('./simd.wasm', import.meta.url)));
