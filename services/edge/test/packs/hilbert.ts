/** Tile ids of PMTiles for tests: the position on the Hilbert curve, after all tiles of lower zoom levels. */
export function tileId(z: number, x: number, y: number): number {
  let id = 0;
  for (let lower = 0; lower < z; lower++) id += 4 ** lower;
  let [column, row] = [x, y];
  for (let side = 2 ** z / 2; side >= 1; side /= 2) {
    const right = Math.floor(column / side) % 2;
    const down = Math.floor(row / side) % 2;
    id += side * side * (right === 1 ? (down === 1 ? 2 : 3) : down);
    if (down === 0) {
      if (right === 1) [column, row] = [side - 1 - (column % side), side - 1 - (row % side)];
      [column, row] = [row, column];
    }
  }
  return id;
}

/** All places of the zoom levels `min` to `max`. */
export function* places(min: number, max: number): Generator<readonly [z: number, x: number, y: number]> {
  for (let z = min; z <= max; z++) {
    for (let x = 0; x < 2 ** z; x++) for (let y = 0; y < 2 ** z; y++) yield [z, x, y];
  }
}
