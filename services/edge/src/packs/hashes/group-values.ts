/** The BLAKE3 value of one group of a file. */
import { blake3, GROUP_BYTES, subtreeValue } from '@ron/simd';
import { groupCount } from './group-tree.ts';

/** The length of a group; the last one may be shorter. */
export const groupLength = (size: number, group: number): number => Math.min(GROUP_BYTES, size - group * GROUP_BYTES);

/** The value of `bytes` as group `group` of a file of `size` bytes. */
export function groupValue(bytes: Uint8Array, group: number, size: number): Uint8Array {
  return groupCount(size) === 1 ? blake3(bytes) : subtreeValue(bytes, group * GROUP_BYTES);
}
