/**
 * Rejections that a model leaves unhandled fail its schedule, where in production they would end the process.
 *
 * Node reports them only after the macrotask, in the async context of the promise, which identifies the schedule. While an
 * exploration runs, the process's own listeners are set aside, and get only the rejections of other code.
 */
import { Run } from './run.ts';

type Listener = (reason: unknown, promise: Promise<unknown>) => void;

const EVENT = 'unhandledRejection';
let explorations = 0;
let setAside: Listener[] = [];

/** Routes unhandled rejections to their runs until `release`. May be nested. */
export function trapRejections(): void {
  if (explorations++ > 0) return;
  setAside = process.rawListeners(EVENT);
  process.removeAllListeners(EVENT);
  process.on(EVENT, route);
}

export function releaseRejections(): void {
  if (--explorations > 0) return;
  process.off(EVENT, route);
  for (const listener of setAside) process.on(EVENT, listener);
  setAside = [];
}

function route(reason: unknown, promise: Promise<unknown>): void {
  const run = Run.current();
  if (run !== undefined) return run.leaveUnhandled(reason);
  // Without a listener Node would have thrown it.
  if (setAside.length === 0) throw reason;
  for (const listener of setAside) listener(reason, promise);
}
