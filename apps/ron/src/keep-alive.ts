import { sched } from '@ron/kernel/core';

/** A command that waits for nothing but one of our timers must not end because of that. */
export function keepAlive(): void {
  sched.timer(Infinity, keepAlive, 'cli.alive', { keepAlive: true });
}
