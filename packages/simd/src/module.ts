/**
 * The compiled module, instantiated once, and how bytes get in and out of its memory.
 *
 * Bound: memory grows to the largest input ever given, rounded up to 64 KiB pages, and is never given back.
 * Cancellation: none; every call is synchronous and short (64 KiB take about 35 us).
 */
// oxlint-disable-next-line ron/no-blocking-calls -- at import, before the service starts
import { readFileSync } from 'node:fs';

export interface Exports {
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
    length: number,
    tables: number,
    plain: number,
  ): void;
}

const PAGE_BYTES = 65_536;
const wasm = new WebAssembly.Module(readFileSync(new URL('./simd.wasm', import.meta.url)));

/** An instance with a memory of its own. */
export const instantiate = (): Exports => new WebAssembly.Instance(wasm, {}).exports as unknown as Exports;

export const simd = instantiate();

/** Where callers' bytes begin, aligned for vector loads. What lies below belongs to the module. */
export const INPUT_AT = Math.ceil(simd.inputAt() / 16) * 16;

let view = new Uint8Array(simd.memory.buffer);

/** The module's memory with room for `bytes` from INPUT_AT on. Views of it die when it grows: take it anew for each call. */
export function memoryFor(bytes: number): Uint8Array {
  growTo(simd.memory, INPUT_AT + bytes);
  if (view.buffer !== simd.memory.buffer) view = new Uint8Array(simd.memory.buffer);
  return view;
}

/** Sees to it that the memory has `bytes`. Views of it die when it grows. */
export function growTo(memory: WebAssembly.Memory, bytes: number): void {
  const missing = bytes - memory.buffer.byteLength;
  if (missing > 0) memory.grow(Math.ceil(missing / PAGE_BYTES));
}
