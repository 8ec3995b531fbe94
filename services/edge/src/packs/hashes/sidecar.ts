/**
 * The file beside a PMTiles pack that keeps the hashes of its groups, so that a restart does not read the pack in full.
 *
 *     0   magic and version        32  address (32 bytes)
 *     8   inode                    64  checks that the pack passed (1 byte), 7 zero bytes
 *     16  size of the pack         72  tiles of the pack, counted by the checks
 *     24  mtime in ns              80  values of the groups, 32 bytes each; then BLAKE3 of all bytes before
 *
 * Contract: a sidecar is used only for the file with its inode, size and mtime, only if its own hash is right, and only if its
 * values combine to its address. Otherwise the pack is read and verified again. A forged sidecar therefore states the address
 * of the bytes that it makes readable: it can never give another file the address of this one. Bytes are checked against the
 * values at each read, so a pack that was changed behind its sidecar is refused and never served.
 */
import { addressBytes, formatAddress } from '@ron/proto';
import { Blake3Hasher, BLAKE3_BYTES } from '@ron/simd';
import { groupCount, treeParts, type TreeParts } from './group-tree.ts';

/** The file that hashes belong to. Renames change none of these; every write changes `mtime_ns`. */
export interface FileStamp {
  readonly inode: bigint;
  readonly size: number;
  readonly mtime_ns: bigint;
}

/** The checks beyond its hashes that a pack passed; a change of the checks needs a new number. */
export const CHECKED = { pmtiles: 1 } as const;
export type Checked = (typeof CHECKED)[keyof typeof CHECKED];

const MAGIC = Buffer.from('RONB3\0\0\x01', 'latin1');
const VALUES_AT = 80;

export const sidecarBytes = (size: number): number => VALUES_AT + (groupCount(size) + 1) * BLAKE3_BYTES;

const hashOf = (bytes: Uint8Array): Uint8Array => {
  const hasher = new Blake3Hasher();
  hasher.update(bytes);
  return hasher.digest();
};

/** The hashes of a pack, and how far it was verified. */
export interface SidecarContent {
  readonly checked: Checked;
  readonly tiles: number;
  readonly tree: TreeParts;
}

export function encodeSidecar(stamp: FileStamp, { checked, tiles, tree }: SidecarContent): Buffer {
  const bytes = Buffer.alloc(sidecarBytes(stamp.size));
  MAGIC.copy(bytes);
  bytes.writeBigUInt64LE(stamp.inode, 8);
  bytes.writeBigUInt64LE(BigInt(stamp.size), 16);
  bytes.writeBigInt64LE(stamp.mtime_ns, 24);
  bytes.set(addressBytes(tree.address), 32);
  bytes[64] = checked;
  bytes.writeBigUInt64LE(BigInt(tiles), 72);
  bytes.set(tree.values, VALUES_AT);
  const end = bytes.length - BLAKE3_BYTES;
  bytes.set(hashOf(bytes.subarray(0, end)), end);
  return bytes;
}

/** The content for the file with this stamp; undefined if the sidecar is not one for it, or if it is damaged. */
export function decodeSidecar(bytes: Buffer, stamp: FileStamp, checked: Checked): SidecarContent | undefined {
  if (stamp.size === 0 || bytes.length !== sidecarBytes(stamp.size)) return undefined;
  if (!bytes.subarray(0, MAGIC.length).equals(MAGIC)) return undefined;
  if (bytes.readBigUInt64LE(8) !== stamp.inode || bytes.readBigUInt64LE(16) !== BigInt(stamp.size)) return undefined;
  if (bytes.readBigInt64LE(24) !== stamp.mtime_ns || bytes[64] !== checked) return undefined;
  const end = bytes.length - BLAKE3_BYTES;
  if (!bytes.subarray(end).equals(hashOf(bytes.subarray(0, end)))) return undefined;
  const tree = treeParts(stamp.size, shared(bytes.subarray(VALUES_AT, end)));
  if (tree.address !== formatAddress(bytes.subarray(32, 64))) return undefined;
  return { checked, tiles: Number(bytes.readBigUInt64LE(72)), tree };
}

/** Shared memory reaches the main thread without a copy. */
function shared(bytes: Uint8Array): Uint8Array {
  const copy = new Uint8Array(new SharedArrayBuffer(bytes.length));
  copy.set(bytes);
  return copy;
}
