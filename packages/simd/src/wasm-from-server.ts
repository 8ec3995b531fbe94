/** The compiled module in a browser. The build without relaxed SIMD runs in every browser, and its BLAKE3 is the same code. */
export const wasm = await WebAssembly.compileStreaming(fetch(new URL('./simd-baseline.wasm', import.meta.url)));
