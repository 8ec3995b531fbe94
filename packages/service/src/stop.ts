/**
 * The shutdown of every service with a listener.
 *
 * Promise: a drain refuses new work at once and lets accepted requests finish, at most until the drain deadline; then
 * tasks are stopped, remaining answers are cut and counted, and files and volumes are closed last. An abort
 * does the same without waiting. Both are idempotent, and the second to come waits for the first.
 * Bound: `drain_ms`, two short graces, and `close_ms`: a resource that does not close in that time (a disk that hangs) is
 * abandoned, and the stop rejects with `timeout`. Cancellation: an abort during a drain cuts it short.
 */
import { Deadline } from '@ron/kernel';
import type { Log } from '@ron/telemetry';
import type { Service } from './process.ts';
import type { StopReport } from '@ron/kernel';
import type { Ingress } from '@ron/ingress';

export interface ServiceInit {
  readonly ingress: Ingress;
  readonly runtime: { stop(init: { drain_ms: number }): Promise<StopReport> };
  /** Read when a drain begins, so that a reload takes effect. */
  readonly drain_ms: () => number;
  readonly log: Log;
  /** Files, volumes, keys: closed when nothing uses them any more. */
  readonly close?: () => Promise<void>;
  /** How long `close` may take. Default 3000. */
  readonly close_ms?: number;
}

/** After the drain deadline: for aborted work and idle tasks to end, and then for answers to leave. */
const END_MS = 50;
const FLUSH_MS = 500;
const CLOSE_MS_DEFAULT = 3000;

/**
 * The time for tasks to end once the listener is drained. Never 0: when a client that reads slowly has used up the
 * budget, idle tasks would be aborted and counted although they need only a turn of the loop to end.
 */
export const tasksDrain_ms = (budget: Pick<Deadline, 'remaining_ms'>): number => Math.max(END_MS, budget.remaining_ms);

/** A service with a listener, for `runProcess`. Call it once the listener listens. */
export function serviceOf(init: ServiceInit): Service & AsyncDisposable {
  const { ingress, runtime, drain_ms, log, close, close_ms = CLOSE_MS_DEFAULT } = init;
  let closing: Promise<void> | undefined;
  const closeInTime = async (): Promise<void> => {
    using budget = Deadline.after('close', close_ms);
    await budget.within(close?.() ?? Promise.resolve());
  };
  const closeOnce = (): Promise<void> => (closing ??= closeInTime());
  const abort = async (): Promise<void> => {
    await ingress.close(AbortSignal.abort());
    await runtime.stop({ drain_ms: 0 });
    await closeOnce();
  };
  return {
    url: ingress.url,
    async drain() {
      using budget = Deadline.after('drain', drain_ms());
      ingress.beginDrain();
      const clean = await ingress.drained(budget.signal);
      const { aborted } = await runtime.stop({ drain_ms: tasksDrain_ms(budget) });
      using flush = Deadline.after('drain', FLUSH_MS);
      const cut = await ingress.close(flush.signal);
      await closeOnce();
      log.info({ clean, tasks_aborted: aborted, requests_cut: cut.aborted }, 'drained');
    },
    abort,
    reload: () => ingress.reloadTls(),
    [Symbol.asyncDispose]: abort,
  };
}
