/**
 * The compiled module, instantiated once, and access to its memory.
 *
 * Bound: memory grows to the largest input so far, rounded up to 64 KiB pages, and never shrinks. Every call is synchronous
 * and short (64 KiB take about 35 us).
 */
import { wasm } from '#wasm';

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

/** An instance with its own memory. */
export const instantiate = (): Exports => new WebAssembly.Instance(wasm, {}).exports as unknown as Exports;

export const simd = instantiate();

/** Where callers' bytes begin, aligned for vector loads. Memory below belongs to the module. */
export const INPUT_AT = Math.ceil(simd.inputAt() / 16) * 16;

let view = new Uint8Array(simd.memory.buffer);

/** The module's memory with room for `bytes` from INPUT_AT on. Growth invalidates views: get a new one for each call. */
export function memoryFor(bytes: number): Uint8Array {
  growTo(simd.memory, INPUT_AT + bytes);
  if (view.buffer !== simd.memory.buffer) view = new Uint8Array(simd.memory.buffer);
  return view;
}

/** Ensures that the memory has at least `bytes`. Growth invalidates views. */
export function growTo(memory: WebAssembly.Memory, bytes: number): void {
  const missing = bytes - memory.buffer.byteLength;
  if (missing > 0) memory.grow(Math.ceil(missing / PAGE_BYTES));
}
