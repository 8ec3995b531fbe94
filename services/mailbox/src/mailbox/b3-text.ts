/** `b3:<hex>` of a hash. */
export const b3Text = (b3: Uint8Array): string =>
  `b3:${Buffer.from(b3.buffer, b3.byteOffset, b3.byteLength).toString('hex')}`;
