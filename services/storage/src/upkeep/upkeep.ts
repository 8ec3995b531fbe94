/**
 * Keeps stored data whole in the background: plans, repairs, scrubs and makes stripes.
 *
 *     lost volume, failed read, interval --> planner --> repair(256) --> K workers --> volumes
 *                                               ^            scrub, striper ----^
 *                                               `-- when the queue is empty: are they whole now?
 *
 * Promise: everything that reads or writes here takes from one byte rate, which gives way to foreground reads and can be
 * changed while it runs. A deficit is planned again until an inventory shows that it is gone; when nothing helps, less and
 * less often. Bound: as the queue, the planner and the workers say. Cancellation: once a drain has begun, no plan, stripe or
 * scrub pass begins; `stopping` ends planner, scrub and striper; `beginDrain` lets the workers empty the queue, and their
 * signal ends them.
 */
import {
  Pacing,
  Planner,
  RepairWorker,
  Scrubber,
  Striper,
  type Fault,
  type PlanReport,
  type Repaired,
  type RepairQueue,
  type ScrubberInit,
} from '@ron/durability';
import { Notify, RonError, sched, sleep, type TaskContext } from '@ron/kernel';
import { type Log } from '@ron/telemetry';
import type { RepairStatus, ScrubInfo } from '@ron/proto';
import type { TaskWork } from './admin-tasks.ts';
import type { StorageConfig } from '../config.ts';
import type { Volumes } from '../volumes/volumes.ts';

export interface UpkeepInit {
  readonly volumes: Volumes;
  readonly queue: RepairQueue;
  /** The config in force; may change while this runs. */
  readonly source: { readonly value: StorageConfig };
  /** Whether a drain has begun: then no plan, stripe or scrub pass begins any more. */
  readonly isStopping: () => boolean;
  /** How long clients waited for the disks lately, by kind of request. */
  readonly latencies_ms: () => readonly (number | undefined)[];
  /** Told of each wait for the byte rate. */
  readonly onWaited: (waited_ms: number) => void;
  /** Objects with missing parts, as far as is known. */
  readonly broken: () => number | undefined;
  /** Checks the journals of uploads beside a volume. */
  readonly journals: NonNullable<ScrubberInit['journals']>;
  readonly log: Log;
}

/** Let the service start first: what is missing then is not there to be repaired either. */
const FIRST_PLAN_MS = 2000;
const FIRST_SCRUB_MS = 60_000;
/** How soon it is looked again when something is missing. */
const RECHECK_MS = 1000;
const IDLE_LOOK_MS = 200;
/** A repair that was asked for gives up when so many plans in a row found nothing better. */
const FUTILE_MAX = 5;

export class Upkeep {
  readonly planner: Planner;
  readonly pacing: Pacing;
  readonly scrubber: Scrubber;
  readonly striper: Striper | undefined;
  readonly results: Record<Repaired | 'failed', number> = { repaired: 0, whole: 0, gone: 0, failed: 0 };
  /** Unix time of the last plan that went through everything. */
  planned_ms: number | undefined;
  readonly #init: UpkeepInit;
  readonly #planDue = new Notify('plan');
  readonly #stripesDue = new Notify('stripes');
  #striping: Promise<unknown> = Promise.resolve();

  constructor(init: UpkeepInit) {
    const { volumes, queue, source } = init;
    const { set } = volumes;
    const { durability } = source.value;
    this.#init = init;
    this.planner = new Planner({ set, queue });
    this.pacing = new Pacing({
      rate_bytes_per_s: durability.repair_pacing,
      latencies_ms: init.latencies_ms,
      onWaited: init.onWaited,
    });
    const pace = (bytes: number, signal: AbortSignal): Promise<void> => this.pacing.take(bytes, signal);
    this.scrubber = new Scrubber({
      set,
      pace,
      onFault: (fault) => this.planner.file(fault),
      journals: init.journals,
      rate_bytes_per_s: () => this.pacing.rate_bytes_per_s,
      period_ms: durability.scrub_interval,
    });
    const { ec_data_shards: data_shards, ec_parity_shards: parity_shards } = durability;
    this.striper = durability.ec ? new Striper({ set, data_shards, parity_shards, pace }) : undefined;
    volumes.onChange = () => this.wake();
    volumes.onFault = (fault) => this.file(fault);
  }

  /** For a read that failed. */
  file(fault: Fault): void {
    this.planner.file(fault);
  }

  /** A plan is due now. */
  wake(): void {
    this.#planDue.notifyOne();
  }

  /** What can be changed while it runs. */
  follow(): void {
    this.pacing.setRate(this.#init.source.value.durability.repair_pacing);
    this.wake();
  }

  /** Takes in nothing more; workers end when the queue is empty. */
  beginDrain(): void {
    // [storage I-6] Queued repairs are finished within the drain; no new job enters.
    this.#init.queue.close();
  }

  async runPlanner({ stopping }: TaskContext): Promise<void> {
    const pause = new Pause(() => this.#interval_ms);
    // A single volume holds everything: a plan runs only on request.
    const first_ms = this.#init.volumes.isSingle ? Infinity : FIRST_PLAN_MS;
    await this.#planDue.notified(stopping, { within_ms: first_ms });
    while (!this.#isStopping(stopping)) {
      const report = await this.#plan(stopping);
      if (report !== undefined && report.deficit > 0) {
        await this.#idle(stopping);
        // With all volumes that knew a stripe, the stripe is gone: what it protected needs another.
        this.#stripesDue.notifyOne();
      }
      await this.#planDue.notified(stopping, { within_ms: pause.after(report) });
    }
  }

  async runWorker({ signal }: TaskContext): Promise<void> {
    const { volumes, queue } = this.#init;
    const worker = new RepairWorker({
      set: volumes.set,
      queue,
      pacing: this.pacing,
      onEnd: (_job, result) => void (this.results[typeof result === 'string' ? result : 'failed'] += 1),
    });
    // Not by `stopping`: what is queued is worked off within the drain.
    await worker.run({ stopping: signal, signal });
  }

  async runScrub({ stopping }: TaskContext): Promise<void> {
    await sleep(FIRST_SCRUB_MS * (1 + sched.random()), stopping, 'scrub');
    if (this.#isStopping(stopping)) return;
    await this.scrubber.runForever(stopping);
  }

  async runStriper({ stopping }: TaskContext): Promise<void> {
    if (this.striper === undefined) return;
    for (;;) {
      await this.#stripesDue.notified(stopping, { within_ms: this.#interval_ms });
      if (this.#isStopping(stopping)) return;
      await this.#stripe(stopping).catch((error: unknown) => {
        stopping.throwIfAborted();
        this.#init.log.warn({ err: error }, 'stripes could not be made');
      });
    }
  }

  /** Plans and repairs until an inventory shows that nothing is missing; then makes the stripes that are. */
  get repair(): TaskWork {
    return { run: (signal) => this.#repairAll(signal), progress: () => ({ ...this.status }) };
  }

  /** Reads everything now. */
  get scrub(): TaskWork {
    return { run: (signal) => this.scrubber.run(signal), progress: () => ({ volumes: this.scrubs }) };
  }

  get status(): RepairStatus {
    const { planner, pacing, results, striper } = this;
    const { volumes, queue } = this.#init;
    const { deficit_by_class, crowded, copies_min, records, isComplete, unreadable } = planner.report;
    const { replication_factor } = volumes.set;
    const broken = this.#init.broken();
    return {
      target: replication_factor,
      observed: Math.min(copies_min, replication_factor),
      deficit: planner.deficit,
      deficit_by_class,
      crowded,
      ...(broken !== undefined && { broken }),
      records,
      is_complete: isComplete,
      is_planning: planner.isPlanning,
      ...(this.planned_ms !== undefined && { planned_ms: this.planned_ms }),
      unreadable: [...unreadable],
      problems: volumes.problems,
      queued: queue.depth,
      inflight: queue.inflight,
      skipped_total: queue.skipped_total,
      results: { ...results },
      bytes_total: pacing.taken_bytes_total,
      rate_bytes_per_s: pacing.rate_bytes_per_s,
      allowed_bytes_per_s: Math.round(pacing.allowed_bytes_per_s),
      ...(striper !== undefined && {
        stripes: { ...striper.report, ...(striper.problem !== undefined && { problem: striper.problem }) },
      }),
    };
  }

  /** Why a scrub cannot end in time, by volume. */
  get scrubProblem(): string | undefined {
    const late = [...this.scrubber.late].map(([name, why]) => `${name}: ${why}`);
    return late.length === 0 ? undefined : `scrub is late: ${late.join('; ')}; raise durability.repair_pacing`;
  }

  /** By volume: how far the pass is, or the last one was. */
  get scrubs(): ScrubInfo[] {
    const { late } = this.scrubber;
    return this.#init.volumes.views.map(({ id, name, used_bytes }) => {
      const state = id === undefined ? undefined : this.scrubber.states.get(id);
      return {
        name,
        used_bytes,
        pass: state?.pass ?? 0,
        is_running: state?.isRunning ?? false,
        records: state?.records ?? 0,
        bytes: state?.bytes ?? 0,
        bad: state?.bad ?? 0,
        begun_s: state?.begun_s ?? 0,
        ended_s: state?.ended_s ?? 0,
        ...(state?.problem !== undefined && { problem: state.problem }),
        ...(late.has(name) && { late: late.get(name)! }),
      };
    });
  }

  #isStopping(stopping: AbortSignal): boolean {
    return stopping.aborted || this.#init.isStopping();
  }

  get #interval_ms(): number {
    const { volumes, source } = this.#init;
    if (volumes.isSingle) return Infinity;
    return source.value.durability.repair_interval * (0.9 + sched.random() / 5);
  }

  /** Undefined when it could not be made. */
  async #plan(signal: AbortSignal): Promise<PlanReport | undefined> {
    const { volumes, log } = this.#init;
    try {
      const report = await this.planner.plan(signal);
      if (report.isComplete) this.planned_ms = sched.wall_ms();
      await volumes.letGo(signal);
      return report;
    } catch (error) {
      signal.throwIfAborted();
      log.warn({ err: error }, 'what has to be repaired could not be planned');
      return undefined;
    }
  }

  /** One after the other: who asks gets a run that began after that. What cannot be made is tried again the next time. */
  #stripe(signal: AbortSignal): Promise<void> {
    const { striper } = this;
    if (striper === undefined) return Promise.resolve();
    const done = this.#striping.then(async () => {
      if (!signal.aborted) await striper.run(signal);
    });
    this.#striping = done.catch(() => undefined);
    return done;
  }

  async #idle(signal: AbortSignal): Promise<void> {
    while (!this.#init.queue.isIdle) await sleep(IDLE_LOOK_MS, signal, 'repair.idle');
  }

  async #repairAll(signal: AbortSignal): Promise<void> {
    let best = Infinity;
    let isStriped = this.striper === undefined;
    for (let futile = 0; futile < FUTILE_MAX; futile++) {
      const report = await this.#plan(signal);
      const isWhole = report?.isComplete === true && report.deficit === 0;
      if (isWhole && isStriped) return;
      if (isWhole) {
        await this.#stripe(signal);
        isStriped = true;
        // What no stripe takes needs copies: that is known only now.
        best = Infinity;
        continue;
      }
      await this.#idle(signal);
      if (report !== undefined && report.deficit < best) [best, futile] = [report.deficit, -1];
      else await sleep(RECHECK_MS, signal, 'repair.recheck');
    }
    const { problems } = this.#init.volumes;
    const why = problems.length === 0 ? '' : `: ${problems.join('; ')}`;
    throw new RonError('not_ready', `${best} records cannot be repaired now${why}`);
  }
}

/** How long to wait for the next plan: soon while plans help, then less and less often, until the interval. */
class Pause {
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
