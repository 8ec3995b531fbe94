/**
 * Whether code goes on after its first wave of microtasks.
 *
 * Two steps that complete in one turn of the event loop interleave only if the first has more than one wave: if all it
 * does happens in the reactions to the promise that the step settles, nothing is left for the second to come between.
 * V8 calls a hook before each reaction; a marker that is queued behind the first wave tells the waves apart.
 *
 *     const unwatch = watchReactions();
 *     settle(); markWave(); drainMicrotasks();
 *     hasLaterWave();                   // true when a reaction ran after the first wave
 */
import { promiseHooks } from 'node:v8';

const settled = Promise.resolve();
let marker: Promise<void> | undefined;
let isPast = false;
let later = 0;

/** Counts reactions until the returned function is called. Functions given to `queueMicrotask` count as a later wave. */
export function watchReactions(): () => void {
  const { queueMicrotask } = globalThis;
  globalThis.queueMicrotask = (callback) => {
    later++;
    queueMicrotask(callback);
  };
  const stop = promiseHooks.onBefore((promise: Promise<unknown>) => {
    if (promise === marker) isPast = true;
    else if (isPast) later++;
  }) as () => void;
  return () => {
    stop();
    globalThis.queueMicrotask = queueMicrotask;
  };
}

/** Begins to count. Reactions that are queued already belong to the first wave. */
export function markWave(): void {
  isPast = false;
  later = 0;
  marker = settled.then(nothing);
}

/** The current reaction is the explorer's own and runs no code of the model. */
export function discountReaction(): void {
  if (isPast) later--;
}

export function hasLaterWave(): boolean {
  return later > 0;
}

function nothing(): void {}
