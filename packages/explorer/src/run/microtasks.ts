/**
 * Running all microtasks, now, from synchronous code.
 *
 * V8 has a native for it, which a flag makes callable. It does nothing while microtasks already run, and every
 * `async` function after its first `await` is one, as is the body of a module or of a node:test test. So an
 * exploration hops to a macrotask first, and a canary makes sure that the hop worked.
 */
import { setFlagsFromString } from 'node:v8';

// The flag stays on: V8 may throw away the compiled body and parse it again.
setFlagsFromString('--allow-natives-syntax');

/** Runs every queued microtask, and those they queue. Only inside `onMacrotask`. */
// oxlint-disable-next-line typescript/no-implied-eval -- the native has no other spelling
export const drainMicrotasks = new Function('return %PerformMicrotaskCheckpoint()') as () => void;

/** Calls `work` where `drainMicrotasks` works. Settles after Node has reported the promises `work` left rejected. */
export async function onMacrotask<T>(work: () => T): Promise<T> {
  const { promise, resolve, reject } = Promise.withResolvers<T>();
  hop(() => {
    try {
      assertDrains();
      const result = work();
      hop(() => resolve(result));
    } catch (error) {
      hop(() => reject(error));
    }
  });
  return promise;
}

function hop(next: () => void): void {
  // oxlint-disable-next-line ron/no-raw-timers -- the explorer drives `sched`, so it cannot wait through it
  setImmediate(next);
}

function assertDrains(): void {
  let ran = false;
  void Promise.resolve().then(() => {
    ran = true;
  });
  drainMicrotasks();
  if (!ran) {
    throw new Error(
      'the explorer cannot run microtasks here: setImmediate called back from inside a microtask. ' +
        'Explore with the real setImmediate, not with mocked timers.',
    );
  }
}
