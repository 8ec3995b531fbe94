/**
 * Decides when to plan repairs: on request, after each loss, and at intervals.
 *
 * Contract: while an inventory shows a deficit, plans repeat until it is gone; plans that do not reduce it become less frequent,
 * down to the configured interval. Cancellation: no plan begins once a drain has begun; `stopping` ends a running one.
 */
import type { Planner, PlanReport, RepairQueue } from '@ron/durability';
import { Notify, RonError, sched, sleep } from '@ron/kernel';
import type { Log } from '@ron/telemetry';
import type { Volumes } from '../volumes/volumes.ts';
import type { StripeSchedule } from './stripe-schedule.ts';

export interface RepairScheduleInit {
  readonly volumes: Volumes;
  readonly queue: RepairQueue;
  readonly planner: Planner;
  readonly stripes: StripeSchedule;
  /** Between plans while nothing is missing. */
  readonly interval_ms: () => number;
  readonly isStopping: () => boolean;
  readonly log: Log;
}

/** Let the service start first: volumes that open late would seem lost. */
const FIRST_PLAN_MS = 2000;
/** Delay of the next plan after one that found a smaller deficit. */
const RECHECK_MS = 1000;
const IDLE_POLL_MS = 200;
/** A requested repair fails after this many successive plans without progress. */
const FUTILE_MAX = 5;

export class RepairSchedule {
  readonly #init: RepairScheduleInit;
  readonly #planDue = new Notify('plan');
  /** Unix time of the last plan that covered every volume. */
  planned_ms: number | undefined;

  constructor(init: RepairScheduleInit) {
    this.#init = init;
  }

  /** Requests a plan now. */
  wake(): void {
    this.#planDue.notifyOne();
  }

  async run(stopping: AbortSignal): Promise<void> {
    const { volumes, stripes, isStopping, interval_ms } = this.#init;
    const backoff = new PlanBackoff(interval_ms);
    // A single volume holds everything: a plan runs only on request.
    const first_ms = volumes.isSingle ? Infinity : FIRST_PLAN_MS;
    await this.#planDue.notified(stopping, { within_ms: first_ms });
    while (!stopping.aborted && !isStopping()) {
      const report = await this.#plan(stopping);
      if (report !== undefined && report.deficit > 0) {
        await this.#idle(stopping);
        // If every volume with a stripe's layout is lost, so is the stripe: its chunks need another.
        stripes.wake();
      }
      await this.#planDue.notified(stopping, { within_ms: backoff.after(report) });
    }
  }

  /** Plans and repairs until an inventory shows no deficit, then makes the missing stripes. */
  async repairAll(signal: AbortSignal): Promise<void> {
    const { stripes, volumes } = this.#init;
    let best = Infinity;
    let isStriped = !stripes.isEnabled;
    for (let futile = 0; futile < FUTILE_MAX; futile++) {
      const report = await this.#plan(signal);
      const isWhole = report?.isComplete === true && report.deficit === 0;
      if (isWhole && isStriped) return;
      if (isWhole) {
        await stripes.make(signal);
        isStriped = true;
        // Chunks that fit no stripe need more copies: only now are they known.
        best = Infinity;
        continue;
      }
      await this.#idle(signal);
      if (report !== undefined && report.deficit < best) [best, futile] = [report.deficit, -1];
      else await sleep(RECHECK_MS, signal, 'repair.recheck');
    }
    const { problems } = volumes;
    const why = problems.length === 0 ? '' : `: ${problems.join('; ')}`;
    throw new RonError('not_ready', `${best} records cannot be repaired now${why}`);
  }

  /** Undefined when the plan failed. */
  async #plan(signal: AbortSignal): Promise<PlanReport | undefined> {
    const { volumes, planner, log } = this.#init;
    try {
      const report = await planner.plan(signal);
      if (report.isComplete) this.planned_ms = sched.wall_ms();
      await volumes.removeUnconfigured(signal);
      return report;
    } catch (error) {
      signal.throwIfAborted();
      log.warn({ err: error }, 'failed to plan repairs');
      return undefined;
    }
  }

  async #idle(signal: AbortSignal): Promise<void> {
    while (!this.#init.queue.isIdle) await sleep(IDLE_POLL_MS, signal, 'repair.idle');
  }
}

/** The delay until the next plan: short while plans make progress, then doubling up to the interval. */
class PlanBackoff {
  readonly #interval_ms: () => number;
  #wait_ms = RECHECK_MS;
  #deficit = Infinity;

  constructor(interval_ms: () => number) {
    this.#interval_ms = interval_ms;
  }

  after(report: PlanReport | undefined): number {
    const interval_ms = this.#interval_ms();
    const deficit = report?.isComplete === true ? report.deficit : Infinity;
    const isBetter = deficit < this.#deficit;
    this.#deficit = deficit;
    if (deficit === 0) {
      [this.#deficit, this.#wait_ms] = [Infinity, RECHECK_MS];
      return interval_ms;
    }
    this.#wait_ms = isBetter ? RECHECK_MS : Math.min(this.#wait_ms * 2, interval_ms);
    return Math.min(this.#wait_ms, interval_ms);
  }
}
