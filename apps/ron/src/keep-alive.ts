import { sched } from '@ron/kernel/core';

/** Keeps the event loop alive: timers of the scheduler are unreferenced, so a command that waits only for one would exit. */
export function keepAlive(): void {
  sched.timer(Infinity, keepAlive, 'cli.alive', { keepAlive: true });
}
