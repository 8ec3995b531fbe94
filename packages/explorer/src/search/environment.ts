/**
 * The process as schedules need it: no real timers, reactions are counted, and the kernel's clock, timers and waits can be
 * replaced per schedule. Everything is as before once `work` has returned or thrown.
 *
 *     inEnvironment(undefined, () => {
 *       installSched(new VirtualSched(run));
 *       runSchedule();
 *     });
 */
import { installProbe, installSched, realSched } from '@ron/kernel/sched';
import type { Footprint } from '../reduce/footprint.ts';
import { watchSignals } from '../reduce/signals.ts';
import { forbidRealTimers } from '../run/escapes.ts';
import { watchReactions } from '../run/reactions.ts';

/** Calls `work`. With `recorder`, abort signals are announced to the footprint that it returns. */
export function inEnvironment(recorder: (() => Footprint | undefined) | undefined, work: () => void): void {
  const sched = installSched(realSched);
  const probe = installProbe(undefined);
  const allowRealTimers = forbidRealTimers();
  const unwatchReactions = watchReactions();
  const unwatchSignals = recorder && watchSignals(recorder);
  try {
    work();
  } finally {
    unwatchSignals?.();
    unwatchReactions();
    allowRealTimers();
    installProbe(probe);
    installSched(sched);
  }
}
