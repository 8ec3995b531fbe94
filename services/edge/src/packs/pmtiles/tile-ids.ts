/** The ids of tiles, and the range of them that a pack may contain. */
import type { DirectoryLimits } from './directory.ts';
import type { PmtilesHeader } from './header.ts';

/** The root and three levels of leaves, as other readers allow. */
export const DIRECTORIES_DEEP_MAX = 4;

/** The id of the first tile of a zoom level: the number of tiles of all lower ones. */
export const firstId = (zoom: number): number => (4 ** zoom - 1) / 3;

/** The limits of the entries of the root directory. */
export function rootLimits({ zooms: [min, max], leaves, tiles }: PmtilesHeader): DirectoryLimits {
  return {
    first_id: firstId(min),
    end_id: firstId(max + 1),
    leaf_bytes: leaves.length,
    tile_bytes: tiles.length,
  };
}
