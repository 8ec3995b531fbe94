/** Many pieces of bytes on their way to a thread and back. Imports nothing, so that a thread starts fast. */

/** Pieces of different lengths, one behind the other: one copy for all of them. */
export interface Packed {
  readonly bytes: Uint8Array;
  /** Where each ends. */
  readonly ends: Uint32Array;
}

export function packed(pieces: readonly Uint8Array[]): Packed {
  const ends = new Uint32Array(pieces.length);
  let end = 0;
  for (let at = 0; at < pieces.length; at++) ends[at] = end += pieces[at]!.length;
  return { bytes: Buffer.concat(pieces, end), ends };
}

export function unpacked({ bytes, ends }: Packed): Uint8Array[] {
  let start = 0;
  return Array.from(ends, (end) => {
    const piece = bytes.subarray(start, end);
    start = end;
    return piece;
  });
}
