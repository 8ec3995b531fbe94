/**
 * The compiled module, instantiated once, and how bytes get in and out of its memory.
 *
 * Bound: memory grows to the largest input ever given, rounded up to 64 KiB pages, and is never given back.
 * Cancellation: none; every call is synchronous and short (64 KiB take about 35 us).
 */
import { readFileSync } from 'node:fs';

interface Exports {
  memory: WebAssembly.Memory;
  inputAt(): number;
  subtreeBytesMax(): number;
  subtree(input: number, length: number, counter: bigint, root: number, out: number): void;
  parent(pair: number, root: number, out: number): void;
  multiply(
    sources: number,
    sourceCount: number,
    targets: number,
    targetCount: number,
    stride: number,
    length: number,
    tables: number,
  ): void;
}

const PAGE_BYTES = 65_536;
const wasm = new WebAssembly.Module(readFileSync(new URL('./simd.wasm', import.meta.url)));
export const simd = new WebAssembly.Instance(wasm, {}).exports as unknown as Exports;

/** Where callers' bytes begin, aligned for vector loads. What lies below belongs to the module. */
export const INPUT_AT = Math.ceil(simd.inputAt() / 16) * 16;

let view = new Uint8Array(simd.memory.buffer);

/** The module's memory with room for `bytes` from INPUT_AT on. Views of it die when it grows: take it anew for each call. */
export function memoryFor(bytes: number): Uint8Array {
  const missing = INPUT_AT + bytes - simd.memory.buffer.byteLength;
  if (missing > 0) simd.memory.grow(Math.ceil(missing / PAGE_BYTES));
  if (view.buffer !== simd.memory.buffer) view = new Uint8Array(simd.memory.buffer);
  return view;
}
