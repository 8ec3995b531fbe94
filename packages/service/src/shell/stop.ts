/**
 * Stops a service, in the same order for every service.
 *
 *     running --drain--> draining: refuse work, answer requests, stop tasks, flush, cut answers, close --> stopped
 *        `-----abort-----> the same steps without waiting for requests and tasks -------------------------^
 *
 * Contract: a drain refuses new work at once and lets accepted requests finish until the drain deadline. Then the tasks
 * stop, `flush` persists their last results, the remaining answers are cut and counted, and the resources are closed. An
 * abort takes the same steps without the waits. Each step runs once; an abort during a drain shortens it.
 * Bound: the drain deadline, `flush_ms`, two short graces and `close_ms`. A flush that fails or is late is logged. A
 * resource that does not close in time (a disk that hangs) is abandoned, and the stop rejects with `timeout`.
 */
import type { Ingress } from '@ron/ingress';
import { Deadline, type StopReport } from '@ron/kernel';
import type { Log } from '@ron/telemetry';

export interface StopInit {
  readonly ingress: Pick<Ingress, 'beginDrain' | 'drained' | 'close'>;
  readonly runtime: { stop(init: { drain_ms: number }): Promise<StopReport>; close(): void };
  /** Read when a drain begins, so that a reload takes effect. */
  readonly drain_ms: () => number;
  readonly log: Pick<Log, 'info' | 'warn'>;
  /** Called when a drain or an abort begins, before the listener refuses work. */
  readonly begin?: (() => void) | undefined;
  /** Called once the accepted requests are answered or the drain deadline has passed, before the tasks stop. */
  readonly afterRequests?: (() => void) | undefined;
  /** Called once the tasks have ended and before channels and resources close. */
  readonly flush?: (() => Promise<void>) | undefined;
  /** Default 1000. */
  readonly flush_ms?: number | undefined;
  /** Closes files, volumes and keys. */
  readonly close: () => Promise<void>;
  /** Default 3000. */
  readonly close_ms?: number | undefined;
}

export interface Stop {
  readonly drain: () => Promise<void>;
  readonly abort: () => Promise<void>;
}

/** The least time for tasks to end: an idle task needs a turn of the event loop, even if requests used up the budget. */
const TASKS_MS_MIN = 50;
const ANSWERS_MS = 500;
const FLUSH_MS_DEFAULT = 1000;
/** How long an abort waits for a flush. */
const ABORT_FLUSH_MS = 1000;
const CLOSE_MS_DEFAULT = 3000;

export function stopOf(init: StopInit): Stop {
  const { ingress, runtime, log } = init;
  const begin = once(() => init.begin?.());
  const afterRequests = once(() => init.afterRequests?.());
  const flush = once(async () => {
    await within('flush', init.flush_ms ?? FLUSH_MS_DEFAULT, init.flush).catch((error: unknown) =>
      log.warn({ err: error }, 'failed to flush before closing'),
    );
    runtime.close();
  });
  // [storage I-11] [kms I-11] [edge I-11] [interop I-11] A close that hangs is abandoned; it does not delay the stop.
  const close = once(() => within('close', init.close_ms ?? CLOSE_MS_DEFAULT, init.close));
  return {
    async drain() {
      using budget = Deadline.after('drain', init.drain_ms());
      begin();
      // [storage I-6] [kms I-6] [index I-6] [edge I-6] [interop I-6] Intake stops first; requests and tasks then share one deadline.
      ingress.beginDrain();
      const clean = await ingress.drained(budget.signal);
      afterRequests();
      const { aborted } = await runtime.stop({ drain_ms: Math.max(TASKS_MS_MIN, budget.remaining_ms) });
      await flush();
      using answers = Deadline.after('drain', ANSWERS_MS);
      const cut = await ingress.close(answers.signal);
      await close();
      log.info({ clean, tasks_aborted: aborted, requests_cut: cut.aborted }, 'drained');
    },
    async abort() {
      begin();
      await ingress.close(AbortSignal.abort());
      afterRequests();
      await runtime.stop({ drain_ms: 0 });
      // A flush that takes longer is abandoned; its failure is logged by the flush itself.
      await within('flush', ABORT_FLUSH_MS, flush).catch(() => undefined);
      await close();
    },
  };
}

/** Calls `step` at the first call; later calls get the same result. */
function once<T>(step: () => T): () => T {
  let result: { readonly value: T } | undefined;
  return () => (result ??= { value: step() }).value;
}

async function within(name: string, ms: number, step: (() => Promise<void>) | undefined): Promise<void> {
  using budget = Deadline.after(name, ms);
  await budget.within(step?.() ?? Promise.resolve());
}
