/**
 * Turns of the event loop: the steps that complete in one turn, in order, before their microtasks run.
 *
 * A turn is known by one number, given how many steps are enabled. Turns of a single step are 0, 1, ... enabled - 1.
 *
 *     encodeTurn([2], 3)        // 2
 *     encodeTurn([2, 0], 3)     // 5: step 2, and step 0 in the same turn
 *     decodeTurn(5, 3)          // [2, 0]
 */

/** More steps than this would not fit a number together with their order. */
const STEPS_IN_TURN_MAX = 8;

export function encodeTurn(indices: readonly number[], enabled: number): number {
  let rest = 0;
  for (const index of indices.slice(1).toReversed()) rest = rest * (enabled + 1) + index + 1;
  return rest * enabled + (indices[0] as number);
}

/** The indices of the steps. Those of a turn that does not exist here may be out of range. */
export function decodeTurn(turn: number, enabled: number): number[] {
  const indices = [turn % enabled];
  for (let rest = Math.floor(turn / enabled); rest > 0; rest = Math.floor(rest / (enabled + 1))) {
    indices.push((rest % (enabled + 1)) - 1);
  }
  return indices;
}

/** All orders of two or more steps that begin with `first` and go on with some of `others`. */
export function* turnsFrom(first: number, others: readonly number[], steps_max: number): Generator<readonly number[]> {
  yield* longer([first], others, Math.min(steps_max, STEPS_IN_TURN_MAX));
}

function* longer(turn: readonly number[], others: readonly number[], steps_max: number): Generator<readonly number[]> {
  if (turn.length >= steps_max) return;
  for (const next of others) {
    if (turn.includes(next)) continue;
    yield [...turn, next];
    yield* longer([...turn, next], others, steps_max);
  }
}
