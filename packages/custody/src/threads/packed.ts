/** Packs many byte arrays into one for a message to a thread. No imports, so that a thread starts fast. */

/** Byte arrays of different lengths, concatenated: one copy for all of them. */
export interface Packed {
  readonly bytes: Uint8Array;
  /** The end offset of each. */
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
