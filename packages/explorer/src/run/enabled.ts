/**
 * Which steps of a run could come next, and in which order they are offered to the search.
 *
 * The natural choice comes first: the task that moved last goes on; else the others in order of creation; else a timer
 * fires. A pause waits for every step that was ready before it; I/O and timers complete at any time.
 *
 *     const [natural, ...others] = enabledSteps(run);
 *     preempts(run, others[0]);        // 1 if the task that moved last could have gone on
 */
import type { Run } from './run.ts';
import type { Step } from './step.ts';

const FIRST = -2;
const TIMERS_LAST = 2 ** 31;

export function enabledSteps(run: Run): Step[] {
  const steps = run.ready.filter((step) => step.kind !== 'pause' || mayResume(run, step));
  if (run.clock.timers.length > 0) steps.push(...run.clock.enabled());
  if (steps.length < 2) return steps;
  return steps.toSorted((a, b) => rank(run, a) - rank(run, b) || a.identity - b.identity);
}

/** 1 when taking `step` leaves a task that could have gone on. A task that pauses or waits for a timer has yielded. */
export function preempts({ last, ready }: Run, step: Step): 0 | 1 {
  if (last === undefined || (step.task === last && step.kind !== 'timer')) return 0;
  return ready.some((other) => other.task === last && other.kind !== 'pause') ? 1 : 0;
}

/** The pending steps as one number that does not depend on their order. */
export function signatureOf({ ready, clock }: Run): number {
  let signature = ready.length;
  for (const step of ready) signature += step.identity;
  for (const timer of clock.timers) signature += timer.identity + timer.due_ms;
  return signature;
}

function mayResume({ ready }: Run, pause: Step): boolean {
  return !ready.some((step) => step.order < pause.order && step.kind !== 'io');
}

function rank(run: Run, step: Step): number {
  if (step.kind === 'timer') return TIMERS_LAST + step.task.index;
  return step.task === run.last ? FIRST : step.task.index;
}
