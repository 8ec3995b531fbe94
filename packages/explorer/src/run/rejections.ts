/**
 * Errors that a model leaves to the process fail its schedule; in production they would end the process. They are rejections
 * without a handler, and exceptions of event listeners, such as abort listeners.
 *
 * Node reports them only after the macrotask, in the async context of the promise or listener, which identifies the
 * schedule. While an exploration runs, the process's own listeners are removed, and get only the errors of other code.
 */
import { Run } from './run.ts';

type Listener = (...args: readonly unknown[]) => void;

const EVENTS = ['unhandledRejection', 'uncaughtException'] as const;
const NAMES = ['unhandled rejection', 'uncaught exception'] as const;
let explorations = 0;
let removed: readonly (readonly Listener[])[] = [];

const routes = EVENTS.map((_event, index) => (error: unknown, ...rest: readonly unknown[]): void => {
  const run = Run.current();
  if (run !== undefined) return run.leaveUnhandled(NAMES[index]!, error);
  const listeners = removed[index] ?? [];
  // Without a listener Node would have thrown it.
  if (listeners.length === 0) throw error;
  for (const listener of listeners) listener(error, ...rest);
});

/** Routes such errors to their runs until `releaseRejections`. May be nested. */
export function trapRejections(): void {
  if (explorations++ > 0) return;
  removed = EVENTS.map((event) => process.rawListeners(event) as Listener[]);
  EVENTS.forEach((event, index) => {
    process.removeAllListeners(event);
    process.on(event, routes[index]!);
  });
}

export function releaseRejections(): void {
  if (--explorations > 0) return;
  EVENTS.forEach((event, index) => {
    process.off(event, routes[index]!);
    for (const listener of removed[index] ?? []) process.on(event, listener);
  });
  removed = [];
}
