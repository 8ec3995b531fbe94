/** Real timers never fire inside a schedule, so code that starts one would hang. Here it fails with the reason. */
const TIMERS = [
  [globalThis, 'setTimeout'],
  [globalThis, 'setInterval'],
  [globalThis, 'setImmediate'],
  [AbortSignal, 'timeout'],
] as const;

/** Makes real timers throw until the returned function is called. */
export function forbidRealTimers(): () => void {
  const saved = TIMERS.map(([owner, name]) => Object.getOwnPropertyDescriptor(owner, name));
  for (const [owner, name] of TIMERS) {
    const value = (): never => {
      throw new Error(`${name} does not work inside a model: use sched.timer, sched.pause or World.io`);
    };
    Object.defineProperty(owner, name, { value, configurable: true, enumerable: true, writable: true });
  }
  return () => TIMERS.forEach(([owner, name], index) => Object.defineProperty(owner, name, saved[index] ?? {}));
}
