/**
 * The address of bytes that arrive in pieces.
 *
 * Contract: `finish` returns the address that storage gives to the same bytes, independent of how they were cut.
 * Bound: as `Blake3Hasher`.
 *
 *     const hasher = new ObjectHasher();
 *     for await (const piece of file) hasher.update(piece);
 *     hasher.finish();   // b3:...
 */
import { formatAddress, type Address } from '@ron/proto';
import { blake3, Blake3Hasher, GROUP_BYTES } from '@ron/simd';

export { GROUP_BYTES } from '@ron/simd';

export class ObjectHasher {
  readonly #hasher = new Blake3Hasher();

  /** Bytes so far. */
  get size(): number {
    return this.#hasher.size;
  }

  update(bytes: Uint8Array): void {
    this.#hasher.update(bytes);
  }

  finish(): Address {
    return formatAddress(this.#hasher.digest());
  }
}

/** The address of bytes in memory. */
export function addressOf(bytes: Uint8Array): Address {
  // A hasher allocates a whole group.
  if (bytes.length <= GROUP_BYTES) return formatAddress(blake3(bytes));
  const hasher = new ObjectHasher();
  hasher.update(bytes);
  return hasher.finish();
}
