/**
 * Real timers never fire inside a schedule, so code that starts one would just seem to hang. Here it is told why.
 */
const NAMES = ['setTimeout', 'setInterval', 'setImmediate'] as const;

/** Makes real timers throw until the returned function is called. */
export function forbidRealTimers(): () => void {
  const saved = NAMES.map((name) => globalThis[name]);
  for (const name of NAMES) {
    replace(name, () => {
      throw new Error(`${name} does not work inside a model: use sched.timer, sched.pause or World.io`);
    });
  }
  return () => NAMES.forEach((name, index) => replace(name, saved[index]));
}

function replace(name: (typeof NAMES)[number], value: unknown): void {
  Object.defineProperty(globalThis, name, { value, configurable: true, enumerable: true, writable: true });
}
