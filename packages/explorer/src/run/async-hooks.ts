/**
 * Async hooks are off while schedules run: nothing but the model runs then, and it is followed by its async context.
 *
 * node:test has a hook that tracks every promise until it is collected, to name the test of an uncaught error. For the
 * millions of promises of an exploration that takes more time than the model itself.
 *
 *     const resume = pauseAsyncHooks();
 *     runSchedules();
 *     resume();
 *
 * Bound: hooks that were enabled before this module was loaded stay on. node:test enables its own at the first test.
 */
import { createHook, type AsyncHook } from 'node:async_hooks';
import { drainMicrotasks } from './microtasks.ts';

const enabled = new Set<AsyncHook>();
const prototype: AsyncHook = Object.getPrototypeOf(createHook({}));
// oxlint-disable-next-line typescript/unbound-method -- called with the hook as `this`
const { enable, disable } = prototype;

prototype.enable = function () {
  enabled.add(this);
  return enable.call(this);
};
prototype.disable = function () {
  enabled.delete(this);
  return disable.call(this);
};

/** Turns hooks off until the returned function is called. Only inside `onMacrotask`. */
export function pauseAsyncHooks(): () => void {
  const paused = [...enabled];
  for (const hook of paused) disable.call(hook);
  // Node stops to follow promises in a microtask.
  drainMicrotasks();
  return () => {
    for (const hook of paused) enable.call(hook);
  };
}
