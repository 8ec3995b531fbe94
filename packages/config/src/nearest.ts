/**
 * The known word that a mistyped one most likely meant.
 *
 * Contract: the closest by edit distance (insert, delete, replace, swap of neighbours), or undefined when none is close.
 * Bound: words longer than `WORD_LENGTH_MAX` are not compared, so hostile input costs little.
 */

const WORD_LENGTH_MAX = 128;

export function nearest(word: string, known: Iterable<string>): string | undefined {
  if (word.length > WORD_LENGTH_MAX) return undefined;
  let best: string | undefined;
  // A third of the letters may be wrong; beyond that a hint misleads.
  let best_distance = Math.max(1, Math.floor(word.length / 3)) + 1;
  for (const candidate of known) {
    const distance = editDistance(word.toLowerCase(), candidate.toLowerCase(), best_distance);
    if (distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best ?? byLastPart(word, known);
}

/** `max_inflight` means `server.max_inflight` when only one key ends so. */
function byLastPart(word: string, known: Iterable<string>): string | undefined {
  const last = word.slice(word.lastIndexOf('.') + 1);
  const same =
    last === '' ? [] : [...known].filter((candidate) => candidate.slice(candidate.lastIndexOf('.') + 1) === last);
  return same.length === 1 ? same[0] : undefined;
}

/** Distance of two words, or `limit` as soon as it cannot be less. */
export function editDistance(left: string, right: string, limit = Infinity): number {
  if (Math.abs(left.length - right.length) >= limit) return limit;
  let before: number[] = [];
  let previous = Array.from({ length: right.length + 1 }, (_, column) => column);
  for (let row = 1; row <= left.length; row++) {
    const current = [row];
    for (let column = 1; column <= right.length; column++) {
      const same = left[row - 1] === right[column - 1];
      let cost = Math.min(previous[column]! + 1, current[column - 1]! + 1, previous[column - 1]! + (same ? 0 : 1));
      const swapped =
        row > 1 && column > 1 && left[row - 1] === right[column - 2] && left[row - 2] === right[column - 1];
      if (swapped) cost = Math.min(cost, before[column - 2]! + 1);
      current.push(cost);
    }
    before = previous;
    previous = current;
  }
  return Math.min(previous[right.length]!, limit);
}
