/** A plain reader of PMTiles v3 for tests. It shares no code with the service: it reads all entries of a file in memory. */
import { brotliDecompressSync, gunzipSync, zstdDecompressSync } from 'node:zlib';

const DECODE: Readonly<Record<number, (bytes: Uint8Array) => Uint8Array>> = {
  1: (bytes) => bytes,
  2: (bytes) => gunzipSync(bytes),
  3: (bytes) => brotliDecompressSync(bytes),
  4: (bytes) => zstdDecompressSync(bytes),
};

/** The stored bytes of every tile, by tile id. */
export function readAllTiles(file: Buffer): Map<number, Buffer> {
  const wide = (at: number): number => Number(file.readBigUInt64LE(at));
  const tiles = new Map<number, Buffer>();
  const decode = DECODE[file[97]!]!;
  const visit = (start: number, length: number): void => {
    for (const [id, run, bytes, offset] of entriesOf(decode(file.subarray(start, start + length)))) {
      if (run === 0n) {
        visit(wide(40) + Number(offset), Number(bytes));
        continue;
      }
      const from = wide(56) + Number(offset);
      const content = file.subarray(from, from + Number(bytes));
      for (let tile = 0n; tile < run; tile++) tiles.set(Number(id + tile), content);
    }
  };
  visit(wide(8), wide(16));
  return tiles;
}

/** The stored bytes of one tile, for files whose runs are too long to expand. */
export function readTile(file: Buffer, id: number): Buffer | undefined {
  const wide = (at: number): number => Number(file.readBigUInt64LE(at));
  const decode = DECODE[file[97]!]!;
  let [start, length] = [wide(8), wide(16)];
  for (;;) {
    const entries = entriesOf(decode(file.subarray(start, start + length)));
    const entry = entries.findLast(([first]) => first <= BigInt(id));
    if (entry === undefined) return undefined;
    const [first, run, bytes, offset] = entry;
    if (run > 0n) {
      const from = wide(56) + Number(offset);
      return BigInt(id) < first + run ? file.subarray(from, from + Number(bytes)) : undefined;
    }
    [start, length] = [wide(40) + Number(offset), Number(bytes)];
  }
}

type Entry = [id: bigint, run: bigint, bytes: bigint, offset: bigint];

function entriesOf(directory: Uint8Array): Entry[] {
  const numbers: bigint[] = [];
  let shift = 0n;
  let value = 0n;
  for (const byte of directory) {
    value |= BigInt(byte & 0x7f) << shift;
    shift += 7n;
    if (byte & 0x80) continue;
    numbers.push(value);
    [value, shift] = [0n, 0n];
  }
  const count = Number(numbers[0]);
  const entries: Entry[] = [];
  let id = 0n;
  for (let at = 1; at <= count; at++) {
    id += numbers[at]!;
    const bytes = numbers[at + 2 * count]!;
    const coded = numbers[at + 3 * count]!;
    const before = entries.at(-1);
    entries.push([id, numbers[at + count]!, bytes, coded === 0n ? before![3] + before![2] : coded - 1n]);
  }
  return entries;
}
