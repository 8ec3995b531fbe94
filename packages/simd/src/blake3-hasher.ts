/**
 * BLAKE3 of bytes that arrive in pieces.
 *
 * Contract: `digest` returns the hash of all bytes passed to `update`, independent of how they were cut into pieces.
 * Bound: the bytes of the open group, at most 64 KiB, and one value per level of the tree: the hasher of a small body stays
 * small. The longest synchronous step hashes one group (about 35 us); `update` hashes all complete groups of its piece.
 *
 *     const hasher = new Blake3Hasher();
 *     for await (const piece of body) hasher.update(piece);
 *     hasher.digest().toHex();
 *
 *     pieces: [----][------------][--]...      groups: |0       |1       |2
 *     values: a stack like a binary counter; after 7 groups it holds (0..3) (4..5) (6)
 */
import { blake3, parentValue, subtreeValue } from './blake3.ts';

export const GROUP_BYTES = 65_536;
const NO_BYTES = new Uint8Array(0);

export class Blake3Hasher {
  readonly #values: Uint8Array[] = [];
  /** The group being filled. A full group waits for the next byte, because the last group is hashed differently. */
  #group: Uint8Array = NO_BYTES;
  #filled = 0;
  #groups = 0;
  #finished = false;

  /** Bytes so far. */
  get size(): number {
    return this.#groups * GROUP_BYTES + this.#filled;
  }

  update(bytes: Uint8Array): void {
    this.#requireUnfinished();
    for (let at = 0; at < bytes.length;) {
      if (this.#filled === GROUP_BYTES) this.#push(this.#group);
      const rest = bytes.length - at;
      if (this.#filled === 0 && rest > GROUP_BYTES) {
        this.#push(bytes.subarray(at, at + GROUP_BYTES));
        at += GROUP_BYTES;
        continue;
      }
      const count = Math.min(rest, GROUP_BYTES - this.#filled);
      this.#fill(bytes.subarray(at, at + count));
      at += count;
    }
  }

  /** The hash, 32 bytes. Called once. */
  digest(): Uint8Array<ArrayBuffer> {
    this.#requireUnfinished();
    this.#finished = true;
    const last = this.#group.subarray(0, this.#filled);
    if (this.#groups === 0) return blake3(last);
    let value = subtreeValue(last, this.#groups * GROUP_BYTES);
    while (this.#values.length > 0) value = parentValue(this.#values.pop()!, value, this.#values.length === 0);
    return value;
  }

  /** Copies bytes that fit into the open group. Its buffer is as long as the first piece, then doubles. */
  #fill(piece: Uint8Array): void {
    const filled = this.#filled + piece.length;
    if (filled > this.#group.length) {
      const larger = new Uint8Array(Math.min(GROUP_BYTES, Math.max(filled, 2 * this.#group.length)));
      larger.set(this.#group.subarray(0, this.#filled));
      this.#group = larger;
    }
    this.#group.set(piece, this.#filled);
    this.#filled = filled;
  }

  /** Adds a group that is not the last. */
  #push(group: Uint8Array): void {
    let value: Uint8Array = subtreeValue(group, this.#groups * GROUP_BYTES);
    this.#groups += 1;
    this.#filled = 0;
    for (let count = this.#groups; count % 2 === 0; count /= 2) value = parentValue(this.#values.pop()!, value, false);
    this.#values.push(value);
  }

  #requireUnfinished(): void {
    if (this.#finished) throw new Error('the hasher has finished');
  }
}
