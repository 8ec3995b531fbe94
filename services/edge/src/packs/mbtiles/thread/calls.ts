/** The calls from `MbtilesOpener` to its threads, and their answers. */
import type { Address } from '@ron/proto';
import type { TileType } from '../../pack.ts';

/** The file that a pack was opened from. A file with other values is not the verified one. */
export interface FileIdentity {
  readonly device: bigint;
  readonly inode: bigint;
  readonly size: bigint;
  readonly mtime_ns: bigint;
}

export interface DatabaseFile {
  /** Unique for each opened pack. */
  readonly id: number;
  readonly path: string;
  readonly identity: FileIdentity;
}

/** Everything that a pack states about itself, checked. */
export interface Description {
  readonly tiles: number;
  readonly zooms: readonly [min: number, max: number];
  readonly bounds: readonly [number, number, number, number];
  readonly center: readonly [number, number, number] | undefined;
  readonly tile_type: TileType;
  readonly metadata: Readonly<Record<string, unknown>>;
}

/** A file that passed all checks. */
export interface VerifiedMbtiles extends Description {
  /** BLAKE3 of its bytes. */
  readonly address: Address;
}

/** The result of one read. */
export type TileResult =
  | { readonly kind: 'tile'; readonly bytes: Uint8Array }
  | { readonly kind: 'absent' }
  /** The tile has more bytes than a tile may have. */
  | { readonly kind: 'too_large' }
  /** The file is not the verified one any more, or its pages are damaged. */
  | { readonly kind: 'damaged'; readonly problem: string };
