/**
 * Hashes of verified bytes of all packs, by which later reads are checked.
 *
 * Contract: a hash is kept only for bytes that matched the address of their pack; none comes from a disk.
 * Bound: `CACHE_BYTES` in blocks of 20 KiB, each for 4 MiB of a file: enough for 6 GiB of packs. Overflow: a block is evicted
 * as `Cache` does it, and its bytes are verified against the address again.
 */
import { blake3UrlSafeBase64 } from '@napi-rs/blake-hash';
import { Cache } from '@ron/cache';
import { GROUP_BYTES } from '@ron/simd';

/** The unit of later checks: 16 chunks, which the native hash computes at once. */
export const PART_BYTES = 16_384;
export const GROUP_PARTS = GROUP_BYTES / PART_BYTES;
const CACHE_BYTES = 32 * 1024 * 1024;
const BLOCK_GROUPS = 64;
const BLOCK_PARTS = BLOCK_GROUPS * GROUP_PARTS;
/** A string of 43 characters with its reference. */
const HASH_BYTES = 80;

/** The whole hash as text: the native module returns text in two thirds of the time of a buffer. */
export const partHash = (bytes: Uint8Array): string => blake3UrlSafeBase64(bytes);

/** Hashes of the parts of a block, by their numbers in it. */
type HashBlock = (string | undefined)[];

export class PartHashes {
  readonly #blocks = new Cache<HashBlock>({ bytes_max: CACHE_BYTES });

  /** The hash of a part of the file; undefined if the part was not verified, or long ago. `pack`: the number of the pack. */
  get(pack: number, part: number): string | undefined {
    return this.#blocks.get(keyOf(pack, part))?.[part % BLOCK_PARTS];
  }

  set(pack: number, part: number, hash: string): void {
    const key = keyOf(pack, part);
    let block = this.#blocks.get(key);
    if (block === undefined) {
      block = Array.from({ length: BLOCK_PARTS }, () => undefined);
      this.#blocks.set(key, block, BLOCK_PARTS * HASH_BYTES);
    }
    block[part % BLOCK_PARTS] = hash;
  }
}

const keyOf = (pack: number, part: number): string => `${pack} ${Math.floor(part / BLOCK_PARTS)}`;
