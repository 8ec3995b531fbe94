/**
 * Steps of computation over many bytes, such as verifying a part of a pack: about 1 MiB in each turn of the event loop.
 *
 * Contract: `longStep` runs `step` in a turn in which other long steps take less than `TURN_BYTES`. A pause alone would not do
 * that: all callers that paused in one turn continue in the same later one.
 * Bound: `WAITING_MAX` waiting steps. Overflow: `busy`. Cancellation: by the signal, before the step begins.
 */
import { FairSemaphore, sched } from '@ron/kernel';

/** Verified in 1 to 3 ms. */
const TURN_BYTES = 1024 * 1024;
/** More than requests can be in flight. */
const WAITING_MAX = 65_536;
const KEY = 'step';

const steps = new FairSemaphore('long_steps', { limit: TURN_BYTES, capacity: WAITING_MAX, keys_max: 1 });

/** `bytes`: those that the step works on. */
export function longStep<T>(bytes: number, signal: AbortSignal, step: () => T): Promise<T> {
  return steps.run(KEY, bytes, signal, async () => {
    await sched.pause('long_steps');
    return step();
  });
}
